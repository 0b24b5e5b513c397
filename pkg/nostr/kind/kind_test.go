package kind_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
)

// Every constant of package nostr has its row, of the same name, and no row is of another's numbers.
func TestTheTableHasTheConstants(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../kind.go", nil, 0)
	require.NoError(t, err)
	var constants []string
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			constants = append(constants, strings.TrimPrefix(spec.Names[0].Name, "Kind"))
		}
		return true
	})
	var names []string
	last := -1
	for _, row := range kind.All() {
		require.Greater(t, int(row.First), last, "%s is in order", row.Name)
		require.GreaterOrEqual(t, row.Last, row.First)
		last = int(row.Last)
		require.NotEmpty(t, row.Meaning, "kind %d", row.First)
		if row.Name != "" {
			names = append(names, row.Name)
		}
	}
	require.Equal(t, constants, names)
}

// The look-up agrees with the table, and with the ranges of NIP-01 for everything else.
func TestLookup(t *testing.T) {
	for _, row := range kind.All() {
		for _, k := range []nostr.Kind{row.First, row.Last} {
			info, ok := kind.Lookup(k)
			require.True(t, ok, "kind %d", k)
			require.Equal(t, row, info)
		}
	}
	for _, k := range []nostr.Kind{2, 1234, 65535} {
		_, ok := kind.Lookup(k)
		require.False(t, ok, "kind %d", k)
	}
}

func TestOf(t *testing.T) {
	known := map[nostr.Kind]kind.Rules{}
	for _, row := range kind.All() {
		for k := int(row.First); k <= int(row.Last); k++ {
			known[nostr.Kind(k)] = row.Rules
		}
	}
	for n := range 1 << 16 {
		k := nostr.Kind(n)
		got, want := kind.Of(k), known[k]
		if !want.Known {
			want.Class = map[bool]kind.Class{k.IsReplaceable(): kind.Replaceable, k.IsEphemeral(): kind.Ephemeral, k.IsAddressable(): kind.Addressable}[true]
			want.Audited = want.Class != kind.Ephemeral
		}
		require.Equal(t, want, got, "kind %d", n)
	}
}

func TestSetsOfKinds(t *testing.T) {
	list := kind.List
	require.Equal(t, []nostr.Kind{0, 9, 30023, 40002, 45001, 45003}, list(func(r kind.Rules) bool { return r.Searchable }))
	require.Equal(t, []nostr.Kind{9021, 30179, 30300, 30350, 41010, 41011, 41012}, list(func(r kind.Rules) bool { return r.Readers == kind.Author }))
	require.Equal(t, []nostr.Kind{30175, 30178}, list(func(r kind.Rules) bool { return r.Readers == kind.Shared }))
	require.Equal(t, []nostr.Kind{30622, 44200}, list(func(r kind.Rules) bool { return r.Readers == kind.Owner }))
	require.Equal(t, []nostr.Kind{4, 1059, 21059, 24200, 30174, 44100, 44101}, list(func(r kind.Rules) bool { return r.Readers == kind.Parties }))
	require.Equal(t, []nostr.Kind{1984}, list(func(r kind.Rules) bool { return r.Readers == kind.Moderators }))
	require.Equal(t, []nostr.Kind{1059, 24200, 30622, 44100, 44101, 44200}, list(func(r kind.Rules) bool { return r.Ask == kind.OwnP }))
	require.Equal(t, []nostr.Kind{22242, 24242, 24243, 27235}, list(func(r kind.Rules) bool { return r.Sender == kind.Proof }))
	require.Equal(t, []nostr.Kind{7, 9, 40008}, list(func(r kind.Rules) bool { return r.Triggers }))
	in := func(f kind.Feeds) []nostr.Kind { return list(func(r kind.Rules) bool { return r.Feeds&f != 0 }) }
	require.Equal(t, []nostr.Kind{1, 9, 1618, 1619, 1621, 1630, 1631, 1632, 1633, 40002, 45001, 45003}, in(kind.Mentions))
	require.Equal(t, []nostr.Kind{40007, 46010}, in(kind.NeedsAction))
	require.Equal(t, []nostr.Kind{9, 40002, 43001, 43003, 43004, 45001}, in(kind.Activity))
	for _, k := range list(func(r kind.Rules) bool { return r.Readers != kind.Everybody || r.Class == kind.Ephemeral }) {
		require.Zero(t, kind.Of(k).Feeds, "kind %d is not for everybody", k)
		require.False(t, kind.Of(k).Searchable, "kind %d is not for everybody", k)
		require.False(t, kind.Of(k).Triggers, "kind %d is not for everybody", k)
	}
}

// What an answer is made of afterwards does not change the table.
func TestAllIsACopy(t *testing.T) {
	all := kind.All()
	all[0].Meaning = "changed"
	require.NotEqual(t, all, kind.All())
	require.True(t, slices.IsSortedFunc(all, func(a, b kind.Info) int { return int(a.First) - int(b.First) }))
}
