package index

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Small alphabets make collisions, and so matches, likely.
func genID() *rapid.Generator[nostr.ID] {
	return rapid.Custom(func(t *rapid.T) nostr.ID { return nostr.ID{rapid.Byte().Draw(t, "id") % 4} })
}

func genKey() *rapid.Generator[nostr.PubKey] {
	return rapid.Custom(func(t *rapid.T) nostr.PubKey { return nostr.PubKey{rapid.Byte().Draw(t, "key") % 4} })
}

func genKind() *rapid.Generator[nostr.Kind] {
	return rapid.SampledFrom([]nostr.Kind{0, 1, 7, 9, 1059})
}

func genValue() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"", "a", "b", "c", "\x00", string(make([]byte, 32))})
}

func genEvent() *rapid.Generator[*nostr.Event] {
	return rapid.Custom(func(t *rapid.T) *nostr.Event {
		tag := rapid.Custom(func(t *rapid.T) nostr.Tag {
			name := rapid.SampledFrom([]string{"p", "e", "h", "P", "long", ""}).Draw(t, "name")
			return append(nostr.Tag{name}, rapid.SliceOfN(genValue(), 0, 2).Draw(t, "values")...)
		})
		return &nostr.Event{
			ID:        genID().Draw(t, "id"),
			PubKey:    genKey().Draw(t, "author"),
			Kind:      genKind().Draw(t, "kind"),
			CreatedAt: rapid.Int64Range(0, 10).Draw(t, "at"),
			Tags:      rapid.SliceOfN(tag, 0, 5).Draw(t, "tags"),
		}
	})
}

func genFilter() *rapid.Generator[nostr.Filter] {
	return rapid.Custom(func(t *rapid.T) nostr.Filter {
		var f nostr.Filter
		if rapid.IntRange(0, 4).Draw(t, "with ids") == 0 {
			f.IDs = rapid.SliceOfN(genID(), 1, 3).Draw(t, "ids")
		}
		if rapid.Bool().Draw(t, "with authors") {
			f.Authors = rapid.SliceOfN(genKey(), 1, 3).Draw(t, "authors")
		}
		switch rapid.IntRange(0, 3).Draw(t, "with kinds") {
		case 0, 1:
			f.Kinds = rapid.SliceOfN(genKind(), 1, 4).Draw(t, "kinds")
		case 2: // more kinds than a filter is filed under
			for k := range nostr.Kind(maxPairs + 1) {
				f.Kinds = append(f.Kinds, k)
			}
		}
		for _, name := range []byte("peh") {
			if rapid.IntRange(0, 2).Draw(t, "with tag") == 0 {
				values := rapid.SliceOfN(genValue(), 1, 3).Draw(t, "values")
				f.Tags = append(f.Tags, nostr.TagCondition{Name: name, Values: values})
			}
		}
		if rapid.IntRange(0, 4).Draw(t, "with since") == 0 {
			since := rapid.Int64Range(0, 10).Draw(t, "since")
			f.Since = &since
		}
		if rapid.IntRange(0, 4).Draw(t, "with until") == 0 {
			until := rapid.Int64Range(0, 10).Draw(t, "until")
			f.Until = &until
		}
		limit := 0
		f.Limit = &limit
		f.MatchesNothing = rapid.IntRange(0, 9).Draw(t, "nothing") == 0
		return f
	})
}

// TestMatchEqualsBruteForce keeps an index and a plain list side by side through additions and
// removals: candidates hold every match, the result is exactly what Filter.Match says, and an emptied
// index holds nothing.
func TestMatchEqualsBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := New[int]()
		filters := map[int][]nostr.Filter{}
		entries := map[int]*Entry[int]{}
		next := 0
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				filters[next] = rapid.SliceOfN(genFilter(), 1, 3).Draw(t, "filters")
				entries[next] = x.Add(next, NewPlan(filters[next]))
				next++
			},
			"remove": func(t *rapid.T) {
				if len(entries) == 0 {
					return
				}
				v := rapid.SampledFrom(keys(entries)).Draw(t, "entry")
				x.Remove(entries[v])
				x.Remove(entries[v])
				delete(entries, v)
				delete(filters, v)
			},
			"match": func(t *rapid.T) {
				e := genEvent().Draw(t, "event")
				var want []int
				for v, fs := range filters {
					if slices.ContainsFunc(fs, func(f nostr.Filter) bool { return f.Match(e) }) {
						want = append(want, v)
					}
				}
				require.Subset(t, candidates(x, e), want)
				require.ElementsMatch(t, want, x.Match(e, nil))
			},
			"match about": func(t *rapid.T) {
				e, subject := genEvent().Draw(t, "event"), genKey().Draw(t, "subject")
				as := *e
				as.PubKey = subject
				var want []int
				for v, fs := range filters {
					if slices.ContainsFunc(fs, func(f nostr.Filter) bool { return f.Match(e) || f.Match(&as) }) {
						want = append(want, v)
					}
				}
				require.ElementsMatch(t, want, x.MatchAbout(e, subject, nil))
			},
			"": func(t *rapid.T) { require.Equal(t, len(entries), x.Len()) },
		})
		for _, e := range entries {
			x.Remove(e)
		}
		requireEmpty(t, x)
	})
}

func candidates(x *Index[int], e *nostr.Event) []int {
	seen := map[int]int{}
	for _, p := range x.lookup(e) {
		for _, s := range p.slots {
			seen[s.filter.entry.value]++
		}
	}
	return keys(seen)
}

func keys[V any](m map[int]V) []int {
	out := make([]int, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func requireEmpty(t require.TestingT, x *Index[int]) {
	require.Zero(t, x.Len())
	require.Empty(t, x.postings)
	require.Zero(t, x.dims)
	require.Zero(t, x.tags)
}

func TestPlanPicksTheMostSelectiveCondition(t *testing.T) {
	t.Parallel()
	id, author := nostr.ID{1}, nostr.PubKey{2}
	tag := func(name byte, values ...string) nostr.TagCondition {
		return nostr.TagCondition{Name: name, Values: values}
	}
	tests := []struct {
		name   string
		filter nostr.Filter
		want   dimension
		letter byte
		keys   int
		proven bool
	}{
		{"ids first", nostr.Filter{IDs: []nostr.ID{id}, Kinds: []nostr.Kind{1, 2}}, dimID, 0, 1, false},
		{"#p before other tags", nostr.Filter{Tags: []nostr.TagCondition{tag('e', "x"), tag('p', "y", "z")}}, dimTag, 'p', 2, false},
		{"tag with fewest values", nostr.Filter{Tags: []nostr.TagCondition{tag('e', "x", "y"), tag('t', "z")}}, dimTag, 't', 1, false},
		{"tag before authors", nostr.Filter{Authors: []nostr.PubKey{author}, Tags: []nostr.TagCondition{tag('e', "x")}}, dimTag, 'e', 1, false},
		{"the group selects nothing", nostr.Filter{Kinds: []nostr.Kind{9}, Tags: []nostr.TagCondition{tag('h', "c")}}, dimKind, 0, 1, false},
		{"authors with their kinds", nostr.Filter{Authors: []nostr.PubKey{author}, Kinds: []nostr.Kind{1, 7}}, dimAuthor, 0, 2, true},
		{"kinds", nostr.Filter{Kinds: []nostr.Kind{1, 7, 7}}, dimKind, 0, 2, true},
		{"everything", nostr.Filter{}, dimAll, 0, 1, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, rest := plan(&tt.filter)
			require.Len(t, got, tt.keys)
			require.Equal(t, tt.want, got[0].dim)
			require.Equal(t, tt.letter, got[0].tag)
			require.Equal(t, tt.proven, isEmpty(&rest))
		})
	}
}
