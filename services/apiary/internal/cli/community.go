package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/apiary-relay/apiary/services/apiary/internal/operator"
	"github.com/apiary-relay/apiary/services/apiary/internal/serve"
)

// directoryFlags say which ingest is asked.
type directoryFlags struct {
	Data     string `help:"Data directory of the apiary serve to talk to. Default: that of apiary serve." placeholder:"DIR"`
	DataHome string `help:"Where the user's data are." env:"XDG_DATA_HOME" hidden:""`
	Ingest   string `help:"Talk to this ingest instead, as of a cluster." env:"-" placeholder:"HOST:PORT"`
}

// with calls do with a connection to ingest.
func (f *directoryFlags) with(env env, do func(*operator.Directory) error) error {
	target, data := f.Ingest, ""
	if target == "" {
		var err error
		if data, err = serve.DataDir(f.Data, f.DataHome); err != nil {
			return err
		}
		socket, err := serve.ControlSocket(data)
		if err != nil {
			return err
		}
		target = "unix://" + socket
	}
	directory, err := operator.Dial(target, env.Out)
	if err != nil { // what --data leads to can be dialled
		return usageError{fmt.Sprintf("--ingest: %v", err)}
	}
	err = do(directory)
	var unreachable *operator.UnreachableError
	if errors.As(err, &unreachable) && data != "" {
		err = fmt.Errorf("%s: no apiary serve on %s (%s): --data chooses another directory, --ingest an ingest of a cluster",
			unreachable.What, data, unreachable.Reason)
	}
	return errors.Join(err, directory.Close())
}

type communityCreateCmd struct {
	directoryFlags `embed:""`
	Host           string `arg:"" help:"Host name that clients connect to, with its port only if the community is for that port."`
	Name           string `help:"Name shown to clients." env:"-"`
	Access         string `help:"open: any authenticated key may read and write; closed: members only." enum:"open,closed" default:"closed" env:"-"`
	Owner          string `help:"Public key of the first member, its owner; needed when closed." env:"-" placeholder:"PUBKEY"`
}

func (c *communityCreateCmd) run(ctx context.Context, env env) error {
	if c.Access == "closed" && c.Owner == "" {
		return usageError{"a closed community needs an --owner, or nobody could use it"}
	}
	return c.with(env, func(d *operator.Directory) error {
		return d.CreateCommunity(ctx, operator.Create{Host: c.Host, Name: c.Name, Access: c.Access, Owner: c.Owner})
	})
}

type communitySetCmd struct {
	directoryFlags `embed:""`
	Host           string  `arg:"" help:"A host of the community."`
	Access         string  `help:"open or closed." enum:",open,closed" default:"" env:"-"`
	Name           *string `help:"Name shown to clients." env:"-"`
	UnknownKinds   string  `help:"What happens to events of kinds that the relay does not know: allow, as on any Nostr relay, or registry-only, to refuse them." enum:",allow,registry-only" default:"" env:"-"`
}

func (c *communitySetCmd) run(ctx context.Context, env env) error {
	return c.with(env, func(d *operator.Directory) error {
		return d.UpdateCommunity(ctx, operator.Update{Host: c.Host, Access: c.Access, Name: c.Name, UnknownKinds: c.UnknownKinds})
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
