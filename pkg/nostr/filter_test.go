package nostr_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

func ptr[T any](v T) *T { return &v }

func TestFilterMatch(t *testing.T) {
	t.Parallel()
	alice, bob := nostrtest.PubKey("alice"), nostrtest.PubKey("bob")
	ev := nostrtest.Event(t, "alice", nostrtest.Kind(9), nostrtest.CreatedAt(100),
		nostrtest.Tag("e", "one", "two"), nostrtest.Tag("e", "three"), nostrtest.Tag("E", "upper"),
		nostrtest.Tag("d"), nostrtest.Tag("t", ""), nostrtest.Tag("tt", "x"), nostrtest.Tag("x", "\x00"))
	cond := func(name byte, values ...string) []nostr.TagCondition {
		return []nostr.TagCondition{{Name: name, Values: values}}
	}
	for name, c := range map[string]struct {
		filter nostr.Filter
		want   bool
	}{
		"empty filter":               {nostr.Filter{}, true},
		"an empty list":              {nostr.Filter{MatchesNothing: true}, false},
		"an empty list and a match":  {nostr.Filter{MatchesNothing: true, Kinds: []nostr.Kind{9}}, false},
		"id":                         {nostr.Filter{IDs: []nostr.ID{{}, ev.ID}}, true},
		"other id":                   {nostr.Filter{IDs: []nostr.ID{{}}}, false},
		"author":                     {nostr.Filter{Authors: []nostr.PubKey{bob, alice}}, true},
		"other author":               {nostr.Filter{Authors: []nostr.PubKey{bob}}, false},
		"kind":                       {nostr.Filter{Kinds: []nostr.Kind{1, 9}}, true},
		"other kind":                 {nostr.Filter{Kinds: []nostr.Kind{1}}, false},
		"since, inclusive":           {nostr.Filter{Since: ptr(int64(100))}, true},
		"since, later":               {nostr.Filter{Since: ptr(int64(101))}, false},
		"until, inclusive":           {nostr.Filter{Until: ptr(int64(100))}, true},
		"until, earlier":             {nostr.Filter{Until: ptr(int64(99))}, false},
		"since after until":          {nostr.Filter{Since: ptr(int64(101)), Until: ptr(int64(99))}, false},
		"limit 0 is live":            {nostr.Filter{Limit: ptr(0)}, true},
		"search is not judged":       {nostr.Filter{Search: "nothing of it"}, true},
		"tag":                        {nostr.Filter{Tags: cond('e', "x", "three")}, true},
		"second value of a tag":      {nostr.Filter{Tags: cond('e', "two")}, false},
		"other value":                {nostr.Filter{Tags: cond('e', "four")}, false},
		"prefix of a value":          {nostr.Filter{Tags: cond('e', "on")}, false},
		"letters have a case":        {nostr.Filter{Tags: cond('E', "one")}, false},
		"upper-case letter":          {nostr.Filter{Tags: cond('E', "upper")}, true},
		"tag without value":          {nostr.Filter{Tags: cond('d', "")}, false},
		"empty value":                {nostr.Filter{Tags: cond('t', "")}, true},
		"name of two letters":        {nostr.Filter{Tags: cond('t', "x")}, false},
		"NUL":                        {nostr.Filter{Tags: cond('x', "\x00")}, true},
		"NUL and no value differ":    {nostr.Filter{Tags: cond('x', "")}, false},
		"two conditions hold":        {nostr.Filter{Tags: append(cond('e', "one"), cond('E', "upper")...)}, true},
		"one of two conditions":      {nostr.Filter{Tags: append(cond('e', "one"), cond('E', "lower")...)}, false},
		"all attributes":             {nostr.Filter{IDs: []nostr.ID{ev.ID}, Authors: []nostr.PubKey{alice}, Kinds: []nostr.Kind{9}, Tags: cond('e', "one"), Since: ptr(int64(1)), Until: ptr(int64(200))}, true},
		"all attributes but the one": {nostr.Filter{IDs: []nostr.ID{ev.ID}, Authors: []nostr.PubKey{bob}, Kinds: []nostr.Kind{9}, Tags: cond('e', "one")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, c.filter.Match(ev))
		})
	}
}

// matchBySets says the same as Filter.Match in another way: as set intersections, spelt out from the
// text of NIP-01.
func matchBySets(f nostr.Filter, e *nostr.Event) bool {
	if f.MatchesNothing {
		return false
	}
	in := map[string]map[string]bool{"id": {e.ID.String(): true}, "author": {e.PubKey.String(): true}, "kind": {string(rune(e.Kind)): true}}
	for _, t := range e.Tags {
		if len(t) > 1 {
			if in["#"+t[0]] == nil {
				in["#"+t[0]] = map[string]bool{}
			}
			in["#"+t[0]][t[1]] = true
		}
	}
	asked := map[string][]string{}
	for _, id := range f.IDs {
		asked["id"] = append(asked["id"], id.String())
	}
	for _, p := range f.Authors {
		asked["author"] = append(asked["author"], p.String())
	}
	for _, k := range f.Kinds {
		asked["kind"] = append(asked["kind"], string(rune(k)))
	}
	for _, c := range f.Tags {
		asked["#"+string(rune(c.Name))] = c.Values
	}
	for what, values := range asked {
		if !slices.ContainsFunc(values, func(v string) bool { return in[what][v] }) {
			return false
		}
	}
	return (f.Since == nil || *f.Since <= e.CreatedAt) && (f.Until == nil || e.CreatedAt <= *f.Until)
}

func TestFilterMatchAgreesWithSets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := nostrtest.UnsignedEvent().Draw(t, "event")
		f := nostrtest.Filter(e).Draw(t, "filter")
		require.Equal(t, matchBySets(f, e), f.Match(e))
	})
}

// TestGeneratorsCollide keeps the generators useful: among the filters that could match something a
// good part must match, and a good part must not.
func TestGeneratorsCollide(t *testing.T) {
	t.Parallel()
	gen := rapid.Custom(func(t *rapid.T) bool {
		e := nostrtest.UnsignedEvent().Draw(t, "event")
		f := nostrtest.Filter(e).Draw(t, "filter")
		return f.Match(e)
	})
	matches := 0
	const n = 1000
	for seed := range n {
		if gen.Example(seed) {
			matches++
		}
	}
	require.Greater(t, matches, n/10)
	require.Less(t, matches, n*9/10)
}

func TestFilterTag(t *testing.T) {
	t.Parallel()
	f := nostr.Filter{Tags: []nostr.TagCondition{{Name: 'e', Values: []string{"x"}}, {Name: 'h', Values: []string{"a", "b"}}}}
	values, ok := f.Tag('h')
	require.True(t, ok)
	require.Equal(t, []string{"a", "b"}, values)
	_, ok = f.Tag('H')
	require.False(t, ok)
}

func BenchmarkMatch(b *testing.B) {
	e := nostrtest.Event(b, "alice", nostrtest.Kind(9), nostrtest.Channel("lobby"), nostrtest.Tag("p", nostrtest.PubKey("bob").String()))
	f := nostr.Filter{
		Kinds:   []nostr.Kind{7, 9, 40002},
		Authors: []nostr.PubKey{nostrtest.PubKey("bob"), nostrtest.PubKey("alice")},
		Tags:    []nostr.TagCondition{{Name: 'h', Values: []string{"garden", "lobby"}}},
		Since:   ptr(nostrtest.Epoch),
	}
	b.ReportAllocs()
	for b.Loop() {
		if !f.Match(e) {
			b.Fatal("no match")
		}
	}
}
