// Package interop runs the clients people use against a running Apiary: go-nostr here, nostr-tools and
// NDK beside it. It is a module of its own, outside the workspace, so that a client's dependencies never
// move the product's.
package interop

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
)

// relays are the gateways under test: events are published through the first and read from the last.
func relays(t *testing.T) (write, read string) {
	t.Helper()
	urls := strings.Split(os.Getenv("APIARY_RELAYS"), ",")
	if urls[0] == "" {
		t.Fatal("APIARY_RELAYS is empty: run `make interop`")
	}
	return urls[0], urls[len(urls)-1]
}

func connect(t *testing.T, url, secret string) *nostr.Relay {
	t.Helper()
	relay, err := nostr.RelayConnect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect to %s: %v", url, err)
	}
	t.Cleanup(func() { _ = relay.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	// go-nostr does not tell when it has the challenge, which comes before any answer: so ask, and be refused.
	sub, err := relay.Subscribe(ctx, nostr.Filters{{Kinds: []int{1}, Limit: 1}})
	if err != nil {
		t.Fatalf("subscribe at %s: %v", url, err)
	}
	select {
	case reason := <-sub.ClosedReason:
		if !strings.HasPrefix(reason, "auth-required:") {
			t.Fatalf("closed with %q before authentication", reason)
		}
	case <-ctx.Done():
		t.Fatal("a subscription before authentication was not refused")
	}
	if err := relay.Auth(ctx, func(event *nostr.Event) error { return event.Sign(secret) }); err != nil {
		t.Fatalf("authenticate with %s: %v", url, err)
	}
	return relay
}

func signed(t *testing.T, secret string, kind int, content string, tags nostr.Tags) nostr.Event {
	t.Helper()
	event := nostr.Event{Kind: kind, Content: content, Tags: tags, CreatedAt: nostr.Now()}
	if err := event.Sign(secret); err != nil {
		t.Fatal(err)
	}
	return event
}

func TestGoNostrPublishesAndReceivesLive(t *testing.T) {
	write, read := relays(t)
	secret := nostr.GeneratePrivateKey()
	pubkey, err := nostr.GetPublicKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	publisher := connect(t, write, secret)
	subscriber := connect(t, read, nostr.GeneratePrivateKey())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	live, err := subscriber.Subscribe(ctx, nostr.Filters{{Kinds: []int{1}, Authors: []string{pubkey}}})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-live.EndOfStoredEvents:
	case reason := <-live.ClosedReason:
		t.Fatalf("closed: %s", reason)
	case <-ctx.Done():
		t.Fatal("no EOSE")
	}
	event := signed(t, secret, 1, "from go-nostr <>& \u2028 \U0001F41D", nil)
	if err := publisher.Publish(ctx, event); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-live.Events:
		if got.ID != event.ID || got.Content != event.Content {
			t.Fatalf("got %s %q, want %s %q", got.ID, got.Content, event.ID, event.Content)
		}
		if ok, err := got.CheckSignature(); !ok || err != nil {
			t.Fatalf("signature: %v %v", ok, err)
		}
	case <-ctx.Done():
		t.Fatal("no live event")
	}
}

func TestGoNostrQueriesDeletesAndCounts(t *testing.T) {
	write, read := relays(t)
	secret := nostr.GeneratePrivateKey()
	pubkey, err := nostr.GetPublicKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	publisher := connect(t, write, secret)
	reader := connect(t, read, nostr.GeneratePrivateKey())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	first := signed(t, secret, 1, "first", nostr.Tags{{"t", "go"}})
	second := signed(t, secret, 1, "second", nostr.Tags{{"t", "go"}})
	for _, event := range []nostr.Event{first, second} {
		if err := publisher.Publish(ctx, event); err != nil {
			t.Fatal(err)
		}
	}
	filter := nostr.Filter{Authors: []string{pubkey}, Tags: nostr.TagMap{"t": {"go"}}}
	if events, err := reader.QuerySync(ctx, filter); err != nil || len(events) != 2 {
		t.Fatalf("query: %d events, %v", len(events), err)
	}
	if count, _, err := reader.Count(ctx, nostr.Filters{filter}); err != nil || count != 2 {
		t.Fatalf("count: %d, %v", count, err)
	}
	if err := publisher.Publish(ctx, signed(t, secret, 5, "", nostr.Tags{{"e", first.ID}})); err != nil {
		t.Fatal(err)
	}
	events, err := reader.QuerySync(ctx, filter)
	if err != nil || len(events) != 1 || events[0].ID != second.ID {
		t.Fatalf("after deletion: %v, %v", events, err)
	}
	err = publisher.Publish(ctx, first)
	if err == nil || !strings.Contains(err.Error(), "blocked:") {
		t.Fatalf("a deleted event came back: %v", err)
	}
}
