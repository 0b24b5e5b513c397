// Package nostrtest makes Nostr material for tests: keys that are the same in every run, signed events,
// and rapid generators whose events and filters are drawn from small pools, so that they collide and
// filters match often. It must not be imported by production code.
//
// Keys are made once per process and are safe for concurrent use; everything else is a new value of
// the caller.
package nostrtest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Epoch is the created_at of the first event that Event makes, in Unix seconds.
const Epoch int64 = 1_700_000_000

var keys struct {
	mu   sync.Mutex
	made map[string]*nostr.SecretKey
}

// Key returns the secret key of a name, the same for the same name in every run.
func Key(name string) *nostr.SecretKey {
	keys.mu.Lock()
	defer keys.mu.Unlock()
	if k, ok := keys.made[name]; ok {
		return k
	}
	seed := sha256.Sum256([]byte("apiary test key " + name))
	k, err := nostr.ParseSecretKey(hex.EncodeToString(seed[:]))
	if err != nil {
		panic(fmt.Sprintf("no key for %q: %v", name, err)) // one name in 2^128
	}
	if keys.made == nil {
		keys.made = make(map[string]*nostr.SecretKey)
	}
	keys.made[name] = k
	return k
}

// PubKey returns the public key of a name.
func PubKey(name string) nostr.PubKey { return Key(name).PubKey() }

// Option changes an event before it is signed.
type Option func(*nostr.Event)

// Kind sets the kind; the default is 1.
func Kind(k nostr.Kind) Option { return func(e *nostr.Event) { e.Kind = k } }

// CreatedAt sets created_at, in Unix seconds; the default is Epoch.
func CreatedAt(at int64) Option { return func(e *nostr.Event) { e.CreatedAt = at } }

// Content sets the content; the default is empty.
func Content(s string) Option { return func(e *nostr.Event) { e.Content = s } }

// Tag adds a tag.
func Tag(elements ...string) Option {
	return func(e *nostr.Event) { e.Tags = append(e.Tags, elements) }
}

// Channel adds an h tag.
func Channel(h string) Option { return Tag("h", h) }

// Event returns an event signed with the key of author.
func Event(tb testing.TB, author string, opts ...Option) *nostr.Event {
	tb.Helper()
	e := &nostr.Event{Kind: nostr.KindText, CreatedAt: Epoch, Tags: nostr.Tags{}}
	for _, o := range opts {
		o(e)
	}
	Sign(tb, author, e)
	return e
}

// Sign signs the event with the key of author.
func Sign(tb testing.TB, author string, e *nostr.Event) {
	tb.Helper()
	if err := e.Sign(Key(author)); err != nil {
		tb.Fatalf("sign event: %v", err)
	}
}

// Raw returns the event's JSON object.
func Raw(e *nostr.Event) []byte { return e.AppendJSON(nil) }

// Auth returns a NIP-42 answer of author to a challenge, for a relay URL, made at the Unix second at; opts make it say more.
func Auth(tb testing.TB, author, challenge, relayURL string, at int64, opts ...Option) *nostr.Event {
	tb.Helper()
	all := []Option{Kind(nostr.KindAuth), CreatedAt(at), Tag("relay", relayURL), Tag("challenge", challenge)}
	return Event(tb, author, append(all, opts...)...)
}

// Filler returns n distinct signed events of author, one second apart from Epoch on.
func Filler(tb testing.TB, author string, n int, opts ...Option) []*nostr.Event {
	tb.Helper()
	events := make([]*nostr.Event, n)
	for i := range events {
		all := append([]Option{CreatedAt(Epoch + int64(i)), Content("event " + strconv.Itoa(i))}, opts...)
		events[i] = Event(tb, author, all...)
	}
	return events
}
