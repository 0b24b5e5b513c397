package cli

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nip19"
	"github.com/apiary-relay/apiary/services/apiary/internal/client"
)

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
	Relay   string `help:"Relay to talk to, by WebSocket; http:// or https:// talks to it by signed HTTP requests." default:"ws://localhost:3000"`
	Connect string `help:"Address to connect to instead of the one of the relay's name, such as one that is not in DNS yet." placeholder:"HOST:PORT" hostport:"empty"`
	keyFlag `embed:""`

	Attestation string `help:"What client attest has printed for this key: it shows whose agent the key is." placeholder:"JSON"`
}

// config loads the key and checks the relay's URL.
func (f *clientFlags) config(env env) (client.Config, error) {
	relay, err := url.Parse(f.Relay)
	if err != nil || relay.Host == "" || !slices.Contains([]string{"ws", "wss", "http", "https"}, relay.Scheme) {
		return client.Config{}, usageError{fmt.Sprintf("--relay %q is not a ws://, wss://, http:// or https:// URL", f.Relay)}
	}
	key, err := f.load(env)
	if err != nil {
		return client.Config{}, err
	}
	attestation, err := parseAttestation(f.Attestation, key.PubKey())
	if err != nil {
		return client.Config{}, err
	}
	return client.Config{URL: f.Relay, Connect: f.Connect, Key: key, Attestation: attestation}, nil
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

// filterFlags choose events, of which all that is given holds.
type filterFlags struct {
	Channel string   `help:"Channel, that is, the h tag." env:"-" placeholder:"ID"`
	Kind    []int    `help:"Event kinds." env:"-" placeholder:"N"`
	Author  []string `help:"Public keys, in hex or as npub." env:"-" placeholder:"PUBKEY"`
	ID      []string `name:"id" help:"Ids of events, in hex, as note or as nevent." env:"-" placeholder:"ID"`
	Tag     []string `help:"Tags of one letter that events have, with one of the values given for it; also as npub, note, nevent or naddr." env:"-" placeholder:"NAME=VALUE" sep:"none"`
	ShowIDs bool     `name:"show-ids" help:"Print the id of each event before it." env:"-"`
	JSON    bool     `name:"json" help:"Print events as JSON, one on a line, as they came: a query's newest first." env:"-"`
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
	for _, text := range f.ID {
		id, err := parseID(text)
		if err != nil {
			return filter, err
		}
		filter.IDs = append(filter.IDs, id)
	}
	if f.Channel != "" {
		filter.Tags = []nostr.TagCondition{{Name: 'h', Values: []string{f.Channel}}}
	}
	for _, text := range f.Tag {
		if err := addCondition(&filter, text); err != nil {
			return filter, err
		}
	}
	return filter, nil
}

// addCondition adds a tag to those that events must have, or a value to one that is there.
func addCondition(filter *nostr.Filter, text string) error {
	tag, err := parseTag(text)
	switch {
	case err != nil:
		return err
	case len(tag) != 2 || !nostr.IsIndexed(tag[0]):
		return usageError{fmt.Sprintf("--tag %q: a filter asks for tags of one letter, as NAME=VALUE", text)}
	}
	for i := range filter.Tags {
		if c := &filter.Tags[i]; c.Name == tag[0][0] {
			c.Values = append(c.Values, tag[1])
			return nil
		}
	}
	filter.Tags = append(filter.Tags, nostr.TagCondition{Name: tag[0][0], Values: []string{tag[1]}})
	return nil
}

type listenCmd struct {
	clientFlags `embed:""`
	filterFlags `embed:""`
	History     int `help:"Stored events to print first." default:"0" env:"-"`
}

func (c *listenCmd) run(ctx context.Context, env env) error {
	filter, err := c.filter()
	if err != nil {
		return err
	}
	switch {
	case c.History < 0:
		return usageError{"--history must not be negative"}
	case strings.HasPrefix(c.Relay, "http"):
		return usageError{"listening takes a WebSocket: give a --relay that begins with ws"}
	}
	cfg, err := c.config(env)
	if err != nil {
		return err
	}
	return client.Listen(ctx, client.ListenConfig{
		Config: cfg, Filter: filter, History: c.History, JSON: c.JSON, IDs: c.ShowIDs, Out: env.Out, Notes: env.Err,
	})
}

type queryCmd struct {
	clientFlags `embed:""`
	filterFlags `embed:""`
	Search      string        `help:"Words that events hold (NIP-50)." env:"-" placeholder:"TEXT"`
	Limit       int           `help:"Most events to print." default:"20" env:"-"`
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
	filter.Limit, filter.Search = &c.Limit, c.Search
	cfg, err := c.config(env)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return client.Query(ctx, client.QueryConfig{
		Config: cfg, Filter: filter, JSON: c.JSON, IDs: c.ShowIDs, Out: env.Out, Notes: env.Err,
	})
}
