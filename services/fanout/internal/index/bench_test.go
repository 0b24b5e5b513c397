package index

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

const subscriptions = 10_000

func numbered(n int) nostr.PubKey {
	var k nostr.PubKey
	binary.BigEndian.PutUint64(k[:], uint64(n))
	return k
}

// BenchmarkMatch shows that the cost follows the matches: 10,000 subscriptions on one topic, of which
// few or all match.
func BenchmarkMatch(b *testing.B) {
	event := &nostr.Event{
		PubKey: numbered(7), Kind: nostr.KindChat, CreatedAt: 1,
		Tags: nostr.Tags{{"h", "hive"}, {"p", numbered(7).String()}, {"e", "root"}},
	}
	hive := nostr.TagCondition{Name: 'h', Values: []string{"hive"}}
	cases := []struct {
		name   string
		want   int
		filter func(n int) nostr.Filter
	}{
		{"few/mentions", 1, func(n int) nostr.Filter {
			return nostr.Filter{Tags: []nostr.TagCondition{hive, {Name: 'p', Values: []string{numbered(n).String()}}}}
		}},
		{"few/authors", 1, func(n int) nostr.Filter {
			return nostr.Filter{Authors: []nostr.PubKey{numbered(n)}, Kinds: []nostr.Kind{nostr.KindChat}}
		}},
		{"few/other-kind-of-one-author", 1, func(n int) nostr.Filter {
			return nostr.Filter{Authors: []nostr.PubKey{numbered(7)}, Kinds: []nostr.Kind{nostr.KindChat + nostr.Kind(n)}}
		}},
		{"many/kind", subscriptions, func(int) nostr.Filter {
			return nostr.Filter{Kinds: []nostr.Kind{nostr.KindChat, nostr.KindReaction}, Tags: []nostr.TagCondition{hive}}
		}},
		{"many/everything", subscriptions, func(int) nostr.Filter { return nostr.Filter{} }},
	}
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			x := New[int]()
			for n := range subscriptions {
				x.Add(n, NewPlan([]nostr.Filter{c.filter(n)}))
			}
			var matched []int
			b.ReportAllocs()
			for b.Loop() {
				matched = x.Match(event, matched[:0])
			}
			require.Len(b, matched, c.want)
		})
	}
}

// others files n subscriptions that do not match the event of BenchmarkMatch, and ten that do.
func others(n int) *Index[int] {
	x := New[int]()
	for i := range n {
		f := nostr.Filter{Authors: []nostr.PubKey{numbered(100 + i)}}
		switch i % 3 {
		case 0:
			f = nostr.Filter{Tags: []nostr.TagCondition{{Name: 'p', Values: []string{numbered(100 + i).String()}}}}
		case 1:
			f.Kinds = []nostr.Kind{nostr.KindChat, nostr.KindReaction}
		}
		x.Add(i, NewPlan([]nostr.Filter{f}))
	}
	for i := range matching {
		x.Add(-1-i, NewPlan([]nostr.Filter{{Kinds: []nostr.Kind{nostr.KindChat}}}))
	}
	return x
}

const matching = 10

func ordinary() *nostr.Event {
	return &nostr.Event{PubKey: numbered(7), Kind: nostr.KindChat, CreatedAt: 1, Tags: nostr.Tags{{"h", "hive"}, {"p", numbered(7).String()}}}
}

// BenchmarkNotMatching shows that those who do not match cost nothing: ten match, among a thousand or a hundred thousand.
func BenchmarkNotMatching(b *testing.B) {
	event := ordinary()
	for _, c := range []struct {
		name string
		n    int
	}{{"1k", 1000}, {"100k", 100_000}} {
		b.Run(c.name, func(b *testing.B) {
			x := others(c.n)
			var matched []int
			b.ReportAllocs()
			for b.Loop() {
				matched = x.Match(event, matched[:0])
			}
			require.Len(b, matched, matching)
		})
	}
}

// The same as a count, which no machine disturbs: nobody is looked at but those who match.
func TestWhoDoesNotMatchIsNotLookedAt(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1000, 100_000} {
		x := others(n)
		require.Len(t, candidates(x, ordinary()), matching, "among %d", n)
		require.Len(t, x.Match(ordinary(), nil), matching)
	}
}

// BenchmarkChurn is one subscription coming and going among many.
func BenchmarkChurn(b *testing.B) {
	x := New[int]()
	for n := range subscriptions {
		x.Add(n, NewPlan([]nostr.Filter{{Kinds: []nostr.Kind{nostr.KindChat}}}))
	}
	f := []nostr.Filter{{Kinds: []nostr.Kind{nostr.KindChat, nostr.KindReaction}}}
	b.ReportAllocs()
	for b.Loop() {
		x.Remove(x.Add(-1, NewPlan(f)))
	}
}

// BenchmarkLargest compares what the largest filter costs whoever files it with what it costs whoever plans it.
func BenchmarkLargest(b *testing.B) {
	f := []nostr.Filter{{Authors: make([]nostr.PubKey, 5000)}}
	for i := range f[0].Authors {
		binary.BigEndian.PutUint64(f[0].Authors[i][:], rand.Uint64())
	}
	plan := NewPlan(f)
	b.Run("plan", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			NewPlan(f)
		}
	})
	b.Run("file", func(b *testing.B) {
		x := New[int]()
		b.ReportAllocs()
		for b.Loop() {
			x.Remove(x.Add(0, plan))
		}
	})
}
