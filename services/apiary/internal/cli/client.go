package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nip19"
	"github.com/apiary-relay/apiary/services/apiary/internal/client"
)

// maxText bounds what publish reads from standard input; the relay takes less.
const maxText = 1 << 20

// keyFlag says whose key is used.
type keyFlag struct {
	Key string `help:"File with the secret key; made with a new key when it is not there. Default: apiary/client.key in the user's configuration directory." placeholder:"FILE"`
}

// load reads the key, or makes one.
func (f *keyFlag) load(env env) (*nostr.SecretKey, error) {
	path := f.Key
	if path == "" {
		base, err := os.UserConfigDir()
		if err != nil {
			return nil, fmt.Errorf("find a place for the key (or give --key): %w", err)
		}
		path = filepath.Join(base, "apiary", "client.key")
	}
	key, created, err := client.LoadKey(path)
	if err != nil {
		return nil, err
	}
	if created {
		fmt.Fprintf(env.Err, "made a new key: %s (public key %s)\n", path, key.PubKey())
	}
	return key, nil
}

// clientFlags are common to the commands that talk to a relay.
type clientFlags struct {
	Relay   string `help:"Relay to talk to." default:"ws://localhost:3000"`
	keyFlag `embed:""`
}

// config loads the key and checks the relay's URL.
func (f *clientFlags) config(env env) (client.Config, error) {
	relay, err := url.Parse(f.Relay)
	if err != nil || relay.Host == "" || (relay.Scheme != "ws" && relay.Scheme != "wss") {
		return client.Config{}, usageError{fmt.Sprintf("--relay %q is not a ws:// or wss:// URL", f.Relay)}
	}
	key, err := f.load(env)
	if err != nil {
		return client.Config{}, err
	}
	return client.Config{URL: f.Relay, Key: key}, nil
}

type whoamiCmd struct {
	keyFlag `embed:""`
}

// run prints the public key in hex and as npub (NIP-19).
func (c *whoamiCmd) run(_ context.Context, env env) error {
	key, err := c.load(env)
	if err != nil {
		return err
	}
	npub, err := nip19.Ref{Type: nip19.PubKey, PubKey: key.PubKey()}.Encode()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Out, "%s\n%s\n", key.PubKey(), npub)
	return err
}

// filterFlags choose events.
type filterFlags struct {
	Channel string   `help:"Channel, that is, the h tag." env:"-" placeholder:"ID"`
	Kind    []int    `help:"Event kinds." env:"-" placeholder:"N"`
	Author  []string `help:"Public keys, in hex or as npub." env:"-" placeholder:"PUBKEY"`
}

func (f *filterFlags) filter() (nostr.Filter, error) {
	var filter nostr.Filter
	for _, kind := range f.Kind {
		if kind < 0 || kind > math.MaxUint16 {
			return filter, usageError{fmt.Sprintf("--kind %d is not 0 to 65535", kind)}
		}
		filter.Kinds = append(filter.Kinds, nostr.Kind(kind))
	}
	for _, author := range f.Author {
		pubkey, err := nip19.ParsePubKey(author)
		if err != nil {
			return filter, usageError{fmt.Sprintf("--author %q: %v", author, err)}
		}
		filter.Authors = append(filter.Authors, pubkey)
	}
	if f.Channel != "" {
		filter.Tags = []nostr.TagCondition{{Name: 'h', Values: []string{f.Channel}}}
	}
	return filter, nil
}

type listenCmd struct {
	clientFlags `embed:""`
	filterFlags `embed:""`
	History     int  `help:"Stored events to print first." default:"0" env:"-"`
	JSON        bool `help:"Print events as JSON, one on a line." name:"json" env:"-"`
}

func (c *listenCmd) run(ctx context.Context, env env) error {
	filter, err := c.filter()
	if err != nil {
		return err
	}
	if c.History < 0 {
		return usageError{"--history must not be negative"}
	}
	cfg, err := c.config(env)
	if err != nil {
		return err
	}
	return client.Listen(ctx, client.ListenConfig{
		Config: cfg, Filter: filter, History: c.History, JSON: c.JSON, Out: env.Out, Notes: env.Err,
	})
}

type publishCmd struct {
	clientFlags `embed:""`
	Channel     string        `help:"Channel to publish in, that is, the h tag." env:"-" placeholder:"ID"`
	Kind        []int         `help:"Event kind. Default: 1, or 9 in a channel." env:"-" placeholder:"N" sep:"none"`
	Tag         []string      `help:"Further tags, as name=value." env:"-" placeholder:"NAME=VALUE" sep:"none"`
	Timeout     time.Duration `help:"How long to try." default:"30s" env:"-"`
	Text        string        `arg:"" help:"Content of the event; - reads it from standard input."`
}

func (c *publishCmd) run(ctx context.Context, env env) error {
	event, err := c.event(env.in)
	if err != nil {
		return err
	}
	cfg, err := c.config(env)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	remark, err := client.Publish(ctx, cfg, event, env.Err)
	if err != nil {
		return err
	}
	if remark != "" {
		fmt.Fprintln(env.Err, client.Printable(remark))
	}
	_, err = fmt.Fprintln(env.Out, event.ID)
	return err
}

// event builds what is to be published.
func (c *publishCmd) event(stdin io.Reader) (*nostr.Event, error) {
	event := &nostr.Event{Kind: nostr.KindText, Tags: nostr.Tags{}, Content: c.Text}
	if c.Channel != "" {
		event.Kind = nostr.KindChat
		event.Tags = append(event.Tags, nostr.Tag{"h", c.Channel})
	}
	switch {
	case len(c.Kind) > 1:
		return nil, usageError{"an event has one --kind"}
	case len(c.Kind) == 1 && (c.Kind[0] < 0 || c.Kind[0] > math.MaxUint16):
		return nil, usageError{fmt.Sprintf("--kind %d is not 0 to 65535", c.Kind[0])}
	case len(c.Kind) == 1:
		event.Kind = nostr.Kind(c.Kind[0])
	}
	for _, tag := range c.Tag {
		name, value, hasValue := strings.Cut(tag, "=")
		if name == "" {
			return nil, usageError{fmt.Sprintf("--tag %q has no name", tag)}
		}
		event.Tags = append(event.Tags, nostr.Tag{name})
		if hasValue {
			last := len(event.Tags) - 1
			event.Tags[last] = append(event.Tags[last], value)
		}
	}
	if c.Text == "-" {
		text, err := io.ReadAll(io.LimitReader(stdin, maxText+1))
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		if len(text) > maxText {
			return nil, errors.New("read standard input: more than an event can hold")
		}
		event.Content = strings.TrimSuffix(string(text), "\n")
	}
	return event, nil
}

type queryCmd struct {
	clientFlags `embed:""`
	filterFlags `embed:""`
	Limit       int           `help:"Most events to print." default:"20" env:"-"`
	JSON        bool          `help:"Print events as JSON, one on a line, newest first." name:"json" env:"-"`
	Timeout     time.Duration `help:"How long to wait for the answer." default:"30s" env:"-"`
}

func (c *queryCmd) run(ctx context.Context, env env) error {
	filter, err := c.filter()
	if err != nil {
		return err
	}
	if c.Limit < 1 {
		return usageError{"--limit must be at least 1"}
	}
	filter.Limit = &c.Limit
	cfg, err := c.config(env)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return client.Query(ctx, client.QueryConfig{Config: cfg, Filter: filter, JSON: c.JSON, Out: env.Out})
}
