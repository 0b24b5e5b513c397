package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/apiary/internal/client"
)

// The commands of who complains, and of those who moderate.

type reportCmd struct {
	aboutFlags `embed:""`
	Text       string `arg:"" optional:"" help:"What is wrong with it; - reads it from standard input."`
	Type       string `help:"nudity, malware, profanity, illegal, spam, impersonation or other." enum:"nudity,malware,profanity,illegal,spam,impersonation,other" default:"other" env:"-"`
}

func (c *reportCmd) run(ctx context.Context, env env) error {
	text, err := text(c.Text, env.in)
	if err != nil {
		return err
	}
	return c.about(ctx, env, func(event *nostr.Event, _ nostr.PubKey) (*nostr.Event, error) {
		return client.Report(event, c.Type, text), nil
	})
}

// measureFlags are common to what moderators do to a key, and what they lift.
type measureFlags struct {
	sendFlags `embed:""`
	Pubkey    string `arg:"" help:"Public key, in hex or as npub."`
	Reason    string `help:"Why, for the other moderators." env:"-" placeholder:"TEXT"`
}

// measure sends a command about the key that lasts for a time, 0 for ever, and says what is done now.
func (f *measureFlags) measure(ctx context.Context, env env, kind nostr.Kind, lasts span, done string) error {
	key, err := parsePubKey(f.Pubkey)
	if err != nil {
		return err
	}
	return f.do(ctx, env, kind, append(nostr.Tags{{"p", key.String()}}, because(lasts, f.Reason)...), "%s "+done, f.Pubkey)
}

// because are the tags for how long a decision holds, 0 for ever, and why it was taken.
func because(lasts span, reason string) (tags nostr.Tags) {
	if lasts > 0 {
		tags = append(tags, nostr.Tag{"expiration", strconv.FormatInt(time.Now().Add(time.Duration(lasts)).Unix(), 10)})
	}
	if reason != "" {
		tags = append(tags, nostr.Tag{"reason", reason})
	}
	return tags
}

type banCmd struct {
	measureFlags `embed:""`
	For          span `help:"How long, such as 12h or 7d; for ever if it is not given." env:"-" placeholder:"TIME"`
}

func (c *banCmd) run(ctx context.Context, env env) error {
	return c.measure(ctx, env, nostr.KindBan, c.For, "is banned")
}

type unbanCmd struct {
	measureFlags `embed:""`
}

func (c *unbanCmd) run(ctx context.Context, env env) error {
	return c.measure(ctx, env, nostr.KindUnban, 0, "is not banned any more")
}

type timeoutCmd struct {
	measureFlags `embed:""`
	For          span `help:"How long, such as 10m or 7d, at most 365d." required:"" env:"-" placeholder:"TIME"`
}

func (c *timeoutCmd) run(ctx context.Context, env env) error {
	return c.measure(ctx, env, nostr.KindTimeout, c.For, "reads and does not write")
}

type untimeoutCmd struct {
	measureFlags `embed:""`
}

func (c *untimeoutCmd) run(ctx context.Context, env env) error {
	return c.measure(ctx, env, nostr.KindUntimeout, 0, "may write again")
}

type resolveCmd struct {
	sendFlags `embed:""`
	Report    string `arg:"" help:"Id of the report, in hex, as note or as nevent."`
	Action    string `arg:"" help:"delete what was reported; kick, ban or timeout its author; dismiss the report; or escalate it, to leave it to somebody else." enum:"delete,kick,ban,timeout,dismiss,escalate"`
	For       span   `help:"How long a ban or timeout lasts, such as 12h or 7d; a ban for ever if it is not given." env:"-" placeholder:"TIME"`
	Reason    string `help:"Why, for the other moderators." env:"-" placeholder:"TEXT"`
}

func (c *resolveCmd) run(ctx context.Context, env env) error {
	id, err := parseID(c.Report)
	switch {
	case err != nil:
		return err
	case c.Action == "timeout" && c.For == 0:
		return usageError{"a timeout needs --for, how long it lasts"}
	case c.For > 0 && c.Action != "timeout" && c.Action != "ban":
		return usageError{"--for is of a ban or a timeout"}
	}
	status, done := "resolved", "is resolved"
	switch c.Action {
	case "dismiss":
		status, done = "dismissed", "is dismissed"
	case "escalate":
		done = "is escalated"
	}
	tags := nostr.Tags{{"report", id.String()}, {"status", status}, {"action", c.Action}}
	return c.do(ctx, env, nostr.KindResolveReport, append(tags, because(c.For, c.Reason)...), "%s "+done, c.Report)
}
