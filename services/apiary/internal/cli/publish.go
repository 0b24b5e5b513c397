package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/apiary/internal/client"
)

// maxText bounds what is read from standard input; the relay takes less.
const maxText = 1 << 20

// sendFlags are common to the commands that publish an event.
type sendFlags struct {
	clientFlags `embed:""`
	Timeout     time.Duration `help:"How long to try." default:"30s" env:"-"`
}

// build makes the event that a command publishes. It may ask the relay for what the event is about.
type build func(ctx context.Context, cfg client.Config) (*nostr.Event, error)

// send publishes what build makes and returns it, signed, with the relay's remark.
func (f *sendFlags) send(ctx context.Context, env env, build build) (event *nostr.Event, remark string, err error) {
	cfg, err := f.config(env)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	event, err = build(ctx, cfg)
	if err != nil {
		return nil, "", err
	}
	remark, err = client.Publish(ctx, cfg, event, env.Err)
	return event, remark, err
}

// publish sends an event and prints its id, and the relay's remark beside.
func (f *sendFlags) publish(ctx context.Context, env env, build build) error {
	event, remark, err := f.send(ctx, env, build)
	if err != nil {
		return err
	}
	if remark != "" {
		fmt.Fprintln(env.Err, client.Printable(remark))
	}
	_, err = fmt.Fprintln(env.Out, event.ID)
	return err
}

// do sends a command to the relay and says what is done now.
func (f *sendFlags) do(ctx context.Context, env env, kind nostr.Kind, tags nostr.Tags, format string, args ...any) error {
	_, _, err := f.send(ctx, env, func(context.Context, client.Config) (*nostr.Event, error) {
		return &nostr.Event{Kind: kind, Tags: tags}, nil
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Out, format+"\n", args...)
	return err
}

// create publishes a command that makes a channel, and prints which: the one that the relay names, or that the command did.
func (f *sendFlags) create(ctx context.Context, env env, event *nostr.Event) error {
	_, remark, err := f.send(ctx, env, func(context.Context, client.Config) (*nostr.Event, error) { return event, nil })
	if err != nil {
		return err
	}
	id, err := client.ChannelMade(remark)
	if err != nil {
		named, ok := event.Channel()
		if !ok {
			return err
		}
		id = named
	}
	_, err = fmt.Fprintln(env.Out, client.Printable(id))
	return err
}

// text is what an argument says, or standard input.
func text(argument string, stdin io.Reader) (string, error) {
	if argument != "-" {
		return argument, nil
	}
	text, err := io.ReadAll(io.LimitReader(stdin, maxText+1))
	if err != nil {
		return "", fmt.Errorf("read standard input: %w", err)
	}
	if len(text) > maxText {
		return "", errors.New("read standard input: more than an event can hold")
	}
	return strings.TrimSuffix(string(text), "\n"), nil
}

// eventFlags make an event of any kind.
type eventFlags struct {
	Channel string   `help:"Channel to publish in, that is, the h tag." env:"-" placeholder:"ID"`
	Kind    []int    `help:"Event kind. Default: 1, or 9 in a channel." env:"-" placeholder:"N" sep:"none"`
	Tag     []string `help:"Further tags, as NAME=VALUE, where the value may be an npub, note, nevent or naddr; as NAME alone, such as - for a protected event (NIP-70); or as a JSON array." env:"-" placeholder:"NAME=VALUE" sep:"none"`
	Text    string   `arg:"" help:"Content of the event; - reads it from standard input."`
}

// event builds what is to be published.
func (f *eventFlags) event(stdin io.Reader) (*nostr.Event, error) {
	event := &nostr.Event{Kind: nostr.KindText, Tags: nostr.Tags{}}
	if f.Channel != "" {
		event.Kind = nostr.KindChat
		event.Tags = append(event.Tags, nostr.Tag{"h", f.Channel})
	}
	switch {
	case len(f.Kind) > 1:
		return nil, usageError{"an event has one --kind"}
	case len(f.Kind) == 1 && (f.Kind[0] < 0 || f.Kind[0] > math.MaxUint16):
		return nil, usageError{fmt.Sprintf("--kind %d is not 0 to 65535", f.Kind[0])}
	case len(f.Kind) == 1:
		event.Kind = nostr.Kind(f.Kind[0])
	}
	for _, given := range f.Tag {
		tag, err := parseTag(given)
		if err != nil {
			return nil, err
		}
		event.Tags = append(event.Tags, tag)
	}
	var err error
	event.Content, err = text(f.Text, stdin)
	return event, err
}

type publishCmd struct {
	sendFlags  `embed:""`
	eventFlags `embed:""`
}

func (c *publishCmd) run(ctx context.Context, env env) error {
	event, err := c.event(env.in)
	if err != nil {
		return err
	}
	return c.publish(ctx, env, func(context.Context, client.Config) (*nostr.Event, error) { return event, nil })
}

type signCmd struct {
	keyFlag    `embed:""`
	eventFlags `embed:""`
}

// run prints the event instead of publishing it.
func (c *signCmd) run(_ context.Context, env env) error {
	event, err := c.event(env.in)
	if err != nil {
		return err
	}
	key, err := c.load(env)
	if err != nil {
		return err
	}
	event.CreatedAt = time.Now().Unix()
	if err := event.Sign(key); err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Out, "%s\n", event.AppendJSON(nil))
	return err
}

// aboutFlags are common to the commands about an event that is there.
type aboutFlags struct {
	sendFlags `embed:""`
	ID        string `arg:"" help:"Id of the event, in hex, as note or as nevent."`
}

// about publishes what build makes of the event.
func (f *aboutFlags) about(ctx context.Context, env env, build func(event *nostr.Event, by nostr.PubKey) (*nostr.Event, error)) error {
	id, err := parseID(f.ID)
	if err != nil {
		return err
	}
	return f.publish(ctx, env, func(ctx context.Context, cfg client.Config) (*nostr.Event, error) {
		event, err := client.Find(ctx, cfg, id)
		if err != nil {
			return nil, err
		}
		return build(event, cfg.Key.PubKey())
	})
}

type replyCmd struct {
	aboutFlags `embed:""`
	Text       string `arg:"" help:"The answer; - reads it from standard input."`
}

func (c *replyCmd) run(ctx context.Context, env env) error {
	text, err := text(c.Text, env.in)
	if err != nil {
		return err
	}
	return c.about(ctx, env, func(event *nostr.Event, _ nostr.PubKey) (*nostr.Event, error) {
		return client.Reply(event, text), nil
	})
}

type reactCmd struct {
	aboutFlags `embed:""`
	Reaction   string `arg:"" help:"An emoji, + or -." default:"+"`
}

func (c *reactCmd) run(ctx context.Context, env env) error {
	return c.about(ctx, env, func(event *nostr.Event, _ nostr.PubKey) (*nostr.Event, error) {
		return client.React(event, c.Reaction), nil
	})
}

type editCmd struct {
	aboutFlags `embed:""`
	Text       string `arg:"" help:"The new text; - reads it from standard input."`
}

func (c *editCmd) run(ctx context.Context, env env) error {
	text, err := text(c.Text, env.in)
	if err != nil {
		return err
	}
	return c.about(ctx, env, func(event *nostr.Event, _ nostr.PubKey) (*nostr.Event, error) {
		return client.Edit(event, text)
	})
}

type deleteCmd struct {
	aboutFlags `embed:""`
	Reason     string `help:"Why." env:"-" placeholder:"TEXT"`
}

func (c *deleteCmd) run(ctx context.Context, env env) error {
	return c.about(ctx, env, func(event *nostr.Event, by nostr.PubKey) (*nostr.Event, error) {
		return client.Delete(event, by, c.Reason), nil
	})
}
