package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/apiary/internal/client"
)

// The commands of members, and of those who moderate, about who is in the community.

type inviteCmd struct {
	sendFlags `embed:""`
}

// run prints the code alone, for whoever is to give it to somebody.
func (c *inviteCmd) run(ctx context.Context, env env) error {
	cfg, err := c.config(env)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	code, err := client.Invite(ctx, cfg)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.Out, code)
	return err
}

type joinCmd struct {
	sendFlags `embed:""`
	Code      string `arg:"" help:"The invite code."`
}

func (c *joinCmd) run(ctx context.Context, env env) error {
	return c.do(ctx, env, nostr.KindRelayJoinRequest, nostr.Tags{{"-"}, {"claim", c.Code}}, "joined %s", c.Relay)
}

type leaveCmd struct {
	sendFlags `embed:""`
}

func (c *leaveCmd) run(ctx context.Context, env env) error {
	return c.do(ctx, env, nostr.KindRelayLeaveRequest, nostr.Tags{{"-"}}, "left %s", c.Relay)
}

type banCmd struct {
	sendFlags `embed:""`
	Pubkey    string `arg:"" help:"Public key, in hex or as npub."`
	For       span   `help:"How long, such as 12h or 7d; for ever if it is not given." env:"-" placeholder:"TIME"`
	Reason    string `help:"Why, for the other moderators." env:"-" placeholder:"TEXT"`
}

func (c *banCmd) run(ctx context.Context, env env) error {
	key, err := parsePubKey(c.Pubkey)
	if err != nil {
		return err
	}
	tags := nostr.Tags{{"p", key.String()}}
	if c.For > 0 {
		tags = append(tags, nostr.Tag{"expiration", strconv.FormatInt(time.Now().Add(time.Duration(c.For)).Unix(), 10)})
	}
	if c.Reason != "" {
		tags = append(tags, nostr.Tag{"reason", c.Reason})
	}
	return c.do(ctx, env, nostr.KindBan, tags, "%s is banned", c.Pubkey)
}

type unbanCmd struct {
	sendFlags `embed:""`
	Pubkey    string `arg:"" help:"Public key, in hex or as npub."`
}

func (c *unbanCmd) run(ctx context.Context, env env) error {
	key, err := parsePubKey(c.Pubkey)
	if err != nil {
		return err
	}
	return c.do(ctx, env, nostr.KindUnban, nostr.Tags{{"p", key.String()}}, "%s is not banned any more", c.Pubkey)
}
