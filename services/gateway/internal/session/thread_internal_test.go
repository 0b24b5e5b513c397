package session

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// The binding is what clients of this family compute: the first one is a vector that they test themselves with.
func TestBindingOfAThreadWindow(t *testing.T) {
	id, key := nostr.ID{}, nostr.PubKey{}
	for i := range id {
		id[i], key[i] = 0xab, 0xab
	}
	w := ThreadWindow{Filter: nostr.Filter{Kinds: []nostr.Kind{9}}, Root: id, Limit: 50, Depth: 100}
	const channel = "00000000-0000-0000-0000-000000000000"
	first := w.binding("relay.example", key, channel)
	require.Equal(t, "tw:1:5252322dfd797ddb1d5f1150acd4cf914b9fc09e39bcf3048d25aed514b3546d", first)

	seen := map[string]bool{first: true}
	differs := func(host string, key nostr.PubKey, channel string, change func(w *ThreadWindow)) {
		t.Helper()
		other := w
		change(&other)
		got := other.binding(host, key, channel)
		require.True(t, strings.HasPrefix(got, "tw:1:"))
		require.False(t, seen[got])
		seen[got] = true
	}
	nothing, until := func(*ThreadWindow) {}, int64(7)
	differs("other.example", key, channel, nothing)
	differs("relay.example", nostr.PubKey{}, channel, nothing)
	differs("relay.example", key, "lobby", nothing)
	differs("relay.example", key, channel, func(w *ThreadWindow) { w.Root = nostr.ID{} })
	differs("relay.example", key, channel, func(w *ThreadWindow) { w.Limit = 49 })
	differs("relay.example", key, channel, func(w *ThreadWindow) { w.Depth = 1 })
	differs("relay.example", key, channel, func(w *ThreadWindow) { w.Aux = true })
	differs("relay.example", key, channel, func(w *ThreadWindow) { w.Filter.Kinds = nil })
	differs("relay.example", key, channel, func(w *ThreadWindow) { w.Filter.Until, w.After = &until, id[:] })

	w.Filter.Kinds = []nostr.Kind{45003, 9, 45003}
	mixed := w.binding("relay.example", key, channel)
	w.Filter.Kinds = []nostr.Kind{9, 45003}
	require.Equal(t, w.binding("relay.example", key, channel), mixed)
}
