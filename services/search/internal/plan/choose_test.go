package plan

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/search/internal/access"
)

func TestDrivers(t *testing.T) {
	keys := func(n int) []nostr.PubKey {
		list := make([]nostr.PubKey, n)
		for i := range list {
			list[i][0], list[i][1] = byte(i), byte(i>>8)
		}
		return list
	}
	tag := func(name byte, values ...string) nostr.TagCondition {
		return nostr.TagCondition{Name: name, Values: values}
	}
	h, e, p2, k := tag('h', "c1"), tag('e', "x"), tag('p', "x", "y"), tag('k', "1")
	tags := func(list ...nostr.TagCondition) []nostr.TagCondition { return list }
	for _, tt := range []struct {
		want   string
		filter nostr.Filter
	}{
		{"ids+tag+channel/rows", nostr.Filter{IDs: []nostr.ID{{1}}, Authors: keys(1), Kinds: []nostr.Kind{0}, Tags: tags(h, e)}},
		{"address/rows", nostr.Filter{Kinds: []nostr.Kind{0, 10002, 30023}, Authors: keys(3)}},
		{"address+tag/rows", nostr.Filter{Kinds: []nostr.Kind{30023}, Authors: keys(3), Tags: tags(tag('d', "x"))}},
		{"authors/rows", nostr.Filter{Kinds: []nostr.Kind{0, 1}, Authors: keys(3)}},
		{"authors.stepped/rows", nostr.Filter{Kinds: []nostr.Kind{0}, Authors: keys(maxAddresses + 1)}},
		{"tag+party/rows", nostr.Filter{Tags: tags(e)}},
		{"tag+tag+party/rows", nostr.Filter{Tags: tags(p2, e)}},
		{"tag+tags+channel/rows", nostr.Filter{Kinds: []nostr.Kind{9}, Authors: keys(1), Tags: tags(k, p2, e, h)}},
		{"tag.many+channel+state+party/rows", nostr.Filter{Tags: tags(p2, h)}},
		{"tag/rows", nostr.Filter{Kinds: []nostr.Kind{1}, Tags: tags(tag('e', "x", "x"))}},
		{"action/rows", nostr.Filter{Kinds: []nostr.Kind{40007}, Tags: tags(tag('p', "x"))}},
		{"action+tag+channel/rows", nostr.Filter{Kinds: []nostr.Kind{46010, 40007}, Tags: tags(h, k, tag('p', "x"))}},
		{"tag.many/rows", nostr.Filter{Kinds: []nostr.Kind{40007}, Tags: tags(p2)}},
		{"tag/rows", nostr.Filter{Kinds: []nostr.Kind{40007, 9}, Tags: tags(tag('p', "x"))}},
		{"channel+channel+state+party/rows", nostr.Filter{Authors: keys(1), Tags: tags(h)}},
		{"channel+tag+channel/rows", nostr.Filter{Kinds: []nostr.Kind{7}, Tags: tags(k, h)}},
		{"channel+channel+state/rows", nostr.Filter{Kinds: []nostr.Kind{9, 39002}, Tags: tags(h)}},
		{"authors+tag/rows", nostr.Filter{Kinds: []nostr.Kind{7}, Authors: keys(1), Tags: tags(k)}},
		{"tag/rows", nostr.Filter{Kinds: []nostr.Kind{7}, Tags: tags(k)}},
		{"kinds+party/rows", nostr.Filter{Kinds: []nostr.Kind{1, 1059}}},
		{"address+party/rows", nostr.Filter{Kinds: []nostr.Kind{30175, 30300}, Authors: []nostr.PubKey{{1}}}},
		{"time+party/rows", nostr.Filter{}},
		{"words+party/rows", nostr.Filter{Search: "bees"}},
		{"words+tag+channel/rows", nostr.Filter{IDs: []nostr.ID{{1}}, Kinds: []nostr.Kind{9}, Tags: tags(h, e), Search: "bees"}},
	} {
		t.Run(tt.want, func(t *testing.T) {
			got, ok := Rows(&tt.filter, access.Reader{Community: 1}, 10, 1000)
			require.True(t, ok)
			require.Equal(t, tt.want, got.Shape.String())
		})
	}
}

func TestNothingToRun(t *testing.T) {
	one, two := int64(1), int64(2)
	for name, f := range map[string]nostr.Filter{
		"an empty list":      {MatchesNothing: true},
		"since after until":  {Since: &two, Until: &one},
		"search for nothing": {Search: "lang:en"},
		"impossible channel": {Tags: []nostr.TagCondition{{Name: 'h', Values: []string{"a b", "", "\x00", strings.Repeat("a", 65)}}}},
	} {
		_, ok := Rows(&f, access.Reader{Community: 1}, 10, 1000)
		require.False(t, ok, name)
		_, ok = Count(&f, access.Reader{Community: 1}, 10)
		require.False(t, ok, name)
	}
	_, ok := Rows(&nostr.Filter{}, access.Reader{Community: 1}, 0, 1000)
	require.False(t, ok, "limit 0")
}

// Whatever a filter says, its statement is one of the known ones, every parameter has a value, and nothing
// of the filter is in the text.
func TestEveryFilterHasAStatement(t *testing.T) {
	known := map[string]bool{}
	for _, sql := range All() {
		known[sql] = true
	}
	rapid.Check(t, func(t *rapid.T) {
		f := nostrtest.Filter().Draw(t, "filter")
		f.Search = rapid.SampledFrom([]string{"", "", "bees", "lang:en"}).Draw(t, "search")
		for _, build := range []func(*nostr.Filter, access.Reader) (Plan, bool){
			func(f *nostr.Filter, r access.Reader) (Plan, bool) { return Rows(f, r, 10, math.MaxInt64) },
			func(f *nostr.Filter, r access.Reader) (Plan, bool) { return Count(f, r, 10) },
			func(f *nostr.Filter, r access.Reader) (Plan, bool) { return IDs(f, r, 10) },
		} {
			p, ok := build(&f, access.Reader{Community: 1})
			if !ok {
				continue
			}
			require.True(t, known[p.SQL], p.Shape)
			require.NotContains(t, p.Args, nil, "an untyped nil is a parameter that build forgot")
		}
	})
}
