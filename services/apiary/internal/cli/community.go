package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/apiary-relay/apiary/services/apiary/internal/operator"
	"github.com/apiary-relay/apiary/services/apiary/internal/serve"
)

// localFlags say which all-in-one is asked.
type localFlags struct {
	Data     string `help:"Data directory of the apiary serve to talk to. Default: that of apiary serve." placeholder:"DIR"`
	DataHome string `help:"Where the user's data are." env:"XDG_DATA_HOME" hidden:""`
}

// with calls do with the address of a service: remote, which a flag named service gives, or that of the all-in-one.
func (f *localFlags) with(service, remote string, do func(target string) error) error {
	if remote != "" {
		return do(remote)
	}
	data, err := serve.DataDir(f.Data, f.DataHome)
	if err != nil {
		return err
	}
	socket, err := serve.ControlSocket(data, service)
	if err != nil {
		return err
	}
	err = do("unix://" + socket)
	var unreachable *operator.UnreachableError
	if errors.As(err, &unreachable) {
		err = fmt.Errorf("%s: no apiary serve on %s (%s): --data chooses another directory, --%s talks to a cluster",
			unreachable.What, data, unreachable.Reason, service)
	}
	return err
}

// directoryFlags say which ingest is asked.
type directoryFlags struct {
	localFlags `embed:""`
	Ingest     string `help:"Talk to this ingest of a cluster instead." env:"-" placeholder:"HOST:PORT"`
	Search     string `hidden:"" env:"-"` // what lists take: whoever gives it is told what is wanted
}

// with calls do with a connection to ingest.
func (f *directoryFlags) with(env env, do func(*operator.Directory) error) error {
	if f.Search != "" {
		return usageError{"--search is for lists: what changes something takes --ingest, the address of an ingest replica"}
	}
	return f.localFlags.with(serve.Ingest, f.Ingest, func(target string) error {
		directory, err := operator.Dial(target, env.Out)
		if err != nil { // what --data leads to can be dialled
			return usageError{fmt.Sprintf("--ingest: %v", err)}
		}
		return errors.Join(do(directory), directory.Close())
	})
}

// listFlags say which search is asked, and how its answer is printed.
type listFlags struct {
	localFlags `embed:""`
	Search     string `help:"Talk to this search of a cluster instead." env:"-" placeholder:"HOST:PORT"`
	Limit      int    `help:"Most lines to print." default:"1000" env:"-"`
	JSON       bool   `help:"Print one JSON object on a line." name:"json" env:"-"`
	Ingest     string `hidden:"" env:"-"` // what changes take, likewise
}

// with calls do with a connection to search.
func (f *listFlags) with(env env, do func(*operator.Reader) error) error {
	switch {
	case f.Limit < 1:
		return usageError{"--limit must be at least 1"}
	case f.Ingest != "":
		return usageError{"--ingest is for what changes something: lists take --search, the address of a search replica"}
	}
	return f.localFlags.with(serve.Search, f.Search, func(target string) error {
		reader, err := operator.DialReader(target, operator.List{Out: env.Out, Notes: env.Err, Limit: f.Limit, JSON: f.JSON})
		if err != nil {
			return usageError{fmt.Sprintf("--search: %v", err)}
		}
		return errors.Join(do(reader), reader.Close())
	})
}

type communityListCmd struct {
	listFlags `embed:""`
}

func (c *communityListCmd) run(ctx context.Context, env env) error {
	return c.with(env, func(r *operator.Reader) error { return r.Communities(ctx) })
}

type communityMembersCmd struct {
	listFlags `embed:""`
	Host      string `arg:"" help:"A host of the community."`
}

func (c *communityMembersCmd) run(ctx context.Context, env env) error {
	return c.with(env, func(r *operator.Reader) error { return r.Members(ctx, c.Host) })
}

type communityCreateCmd struct {
	directoryFlags `embed:""`
	Host           string   `arg:"" help:"Host name that clients connect to, with its port only if the community is for that port."`
	Aliases        []string `arg:"" optional:"" help:"Further host names of the community."`
	Name           string   `help:"Name shown to clients." env:"-"`
	Description    string   `help:"Description shown to clients." env:"-"`
	Access         string   `help:"open: any authenticated key may read and write; closed: members only." enum:"open,closed" default:"closed" env:"-"`
	IfMissing      bool     `help:"Do nothing if the host has a community, whatever it is, or had one that was deleted." env:"-"`
	Owner          string   `help:"Public key of the first member, its owner; needed when closed." env:"-" placeholder:"PUBKEY"`
}

func (c *communityCreateCmd) run(ctx context.Context, env env) error {
	if c.Access == "closed" && c.Owner == "" {
		return usageError{"a closed community needs an --owner, or nobody could use it"}
	}
	return c.with(env, func(d *operator.Directory) error {
		return d.CreateCommunity(ctx, operator.Create{
			Host: c.Host, Aliases: c.Aliases, Name: c.Name, Description: c.Description, Access: c.Access, Owner: c.Owner,
			IfMissing: c.IfMissing,
		})
	})
}

type communitySetCmd struct {
	directoryFlags `embed:""`
	Host           string  `arg:"" help:"A host of the community."`
	Access         string  `help:"open or closed." enum:",open,closed" default:"" env:"-"`
	Name           *string `help:"Name shown to clients." env:"-"`
	Description    *string `help:"Description shown to clients." env:"-"`
	UnknownKinds   string  `help:"What happens to events of kinds that the relay does not know: allow, as on any Nostr relay, or registry-only, to refuse them." enum:",allow,registry-only" default:"" env:"-"`
	Agents         string  `help:"What a closed community does with agents of its members (NIP-OA): admit them as long as their owner is a member, or refuse those that are no members themselves." enum:",admit,refuse" default:"" env:"-"`
}

func (c *communitySetCmd) run(ctx context.Context, env env) error {
	return c.with(env, func(d *operator.Directory) error {
		return d.UpdateCommunity(ctx, operator.Update{
			Host: c.Host, Access: c.Access, Name: c.Name, Description: c.Description, UnknownKinds: c.UnknownKinds, Agents: c.Agents,
		})
	})
}

type memberAddCmd struct {
	directoryFlags `embed:""`
	Host           string `arg:"" help:"A host of the community."`
	Pubkey         string `arg:"" help:"Public key, in hex or as npub."`
	Role           string `help:"owner, admin or member." enum:"owner,admin,member" default:"member" env:"-"`
}

func (c *memberAddCmd) run(ctx context.Context, env env) error {
	return c.with(env, func(d *operator.Directory) error {
		return d.PutMember(ctx, c.Host, c.Pubkey, c.Role)
	})
}

type memberRemoveCmd struct {
	directoryFlags `embed:""`
	Host           string `arg:"" help:"A host of the community."`
	Pubkey         string `arg:"" help:"Public key, in hex or as npub."`
}

func (c *memberRemoveCmd) run(ctx context.Context, env env) error {
	return c.with(env, func(d *operator.Directory) error {
		return d.RemoveMember(ctx, c.Host, c.Pubkey)
	})
}
