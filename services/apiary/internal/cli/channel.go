package cli

import (
	"context"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// channelCommands are about channels (NIP-29): who is in one, and that it is there.
type channelCommands struct {
	Create channelCreateCmd `cmd:"" help:"Make a channel and print its id, which is random unless given."`
	Add    channelAddCmd    `cmd:"" help:"Add a member to a channel, or change its role."`
	Remove channelRemoveCmd `cmd:"" help:"Remove a member from a channel; no later event reaches it."`
	Join   channelJoinCmd   `cmd:"" help:"Join an open channel, or one whose code is known."`
	Leave  channelLeaveCmd  `cmd:"" help:"Leave a channel."`
	Delete channelDeleteCmd `cmd:"" help:"Delete a channel with all that is in it."`
}

type channelCreateCmd struct {
	sendFlags `embed:""`
	ID        string `arg:"" optional:"" help:"Id of the channel: letters, digits, - and _."`
	Name      string `help:"Name shown to people." env:"-" required:""`
	About     string `help:"What it is for." env:"-" placeholder:"TEXT"`
	Private   bool   `help:"There for its members only; to others it does not exist." env:"-"`
}

func (c *channelCreateCmd) run(ctx context.Context, env env) error {
	tags := nostr.Tags{{"name", c.Name}}
	if c.ID != "" {
		tags = append(tags, nostr.Tag{"h", c.ID})
	}
	if c.About != "" {
		tags = append(tags, nostr.Tag{"about", c.About})
	}
	if c.Private {
		tags = append(tags, nostr.Tag{"private"})
	}
	return c.create(ctx, env, &nostr.Event{Kind: nostr.KindCreateGroup, Tags: tags})
}

// channelFlags are common to the commands about a channel that is there.
type channelFlags struct {
	sendFlags `embed:""`
	Channel   string `arg:"" help:"Id of the channel."`
}

// inside sends a command about the channel.
func (f *channelFlags) inside(ctx context.Context, env env, kind nostr.Kind, tags nostr.Tags, format string, args ...any) error {
	return f.do(ctx, env, kind, append(nostr.Tags{{"h", f.Channel}}, tags...), format, args...)
}

type channelAddCmd struct {
	channelFlags `embed:""`
	Pubkey       string `arg:"" help:"Public key, in hex or as npub."`
	Role         string `help:"owner, admin, member, guest or bot." enum:"owner,admin,member,guest,bot" default:"member" env:"-"`
}

func (c *channelAddCmd) run(ctx context.Context, env env) error {
	key, err := parsePubKey(c.Pubkey)
	if err != nil {
		return err
	}
	return c.inside(ctx, env, nostr.KindPutUser, nostr.Tags{{"p", key.String()}, {"role", c.Role}}, "%s is now %s of %s", c.Pubkey, c.Role, c.Channel)
}

type channelRemoveCmd struct {
	channelFlags `embed:""`
	Pubkey       string `arg:"" help:"Public key, in hex or as npub."`
}

func (c *channelRemoveCmd) run(ctx context.Context, env env) error {
	key, err := parsePubKey(c.Pubkey)
	if err != nil {
		return err
	}
	return c.inside(ctx, env, nostr.KindRemoveUser, nostr.Tags{{"p", key.String()}}, "%s is not a member of %s any more", c.Pubkey, c.Channel)
}

type channelJoinCmd struct {
	channelFlags `embed:""`
	Code         string `help:"Code that opens the channel." env:"-"`
}

func (c *channelJoinCmd) run(ctx context.Context, env env) error {
	var tags nostr.Tags
	if c.Code != "" {
		tags = nostr.Tags{{"code", c.Code}}
	}
	return c.inside(ctx, env, nostr.KindJoinRequest, tags, "joined %s", c.Channel)
}

type channelLeaveCmd struct {
	channelFlags `embed:""`
}

func (c *channelLeaveCmd) run(ctx context.Context, env env) error {
	return c.inside(ctx, env, nostr.KindLeaveRequest, nil, "left %s", c.Channel)
}

type channelDeleteCmd struct {
	channelFlags `embed:""`
}

func (c *channelDeleteCmd) run(ctx context.Context, env env) error {
	return c.inside(ctx, env, nostr.KindDeleteGroup, nil, "deleted %s", c.Channel)
}
