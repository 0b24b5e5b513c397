package search

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/search/internal/access"
	"github.com/apiary-relay/apiary/services/search/internal/plan"
	"github.com/apiary-relay/apiary/services/search/internal/store"
	"github.com/apiary-relay/apiary/services/search/internal/words"
)

var vocabulary = []string{"bees", "wax", "hive", "queen", "honey", "dance"}

// speak gives the events something to say.
func (w *world) speak(t *rapid.T) {
	said := rapid.SliceOfN(rapid.SampledFrom(vocabulary), 0, 6)
	kept := w.events[:0]
	seen := map[nostr.ID]bool{}
	for _, e := range w.events {
		if words.IsIndexed(e.Kind) {
			e.Content = strings.Join(said.Draw(t, "said"), " ")
			e.ID = e.ComputeID()
		}
		if !seen[e.ID] {
			kept = append(kept, e)
		}
		seen[e.ID] = true
	}
	w.events = kept
}

// index writes the documents of what is stored.
func (w *world) index(ctx context.Context, t *rapid.T, s *Service, r access.Reader) {
	t.Helper()
	var docs []store.Document
	for _, e := range w.events {
		if words.IsIndexed(e.Kind) {
			docs = append(docs, store.Document{Community: r.Community, ID: e.ID, CreatedAt: e.CreatedAt, Kind: e.Kind, Text: words.Of(e)})
		}
	}
	require.NoError(t, s.store.Index(ctx, docs))
	require.NoError(t, s.store.Index(ctx, docs), "again")
}

// drawQuery draws a query: groups of terms, one of which must hold, and extensions.
func drawQuery(t *rapid.T) (query string, groups [][]string) {
	var parts []string
	for range rapid.IntRange(1, 2).Draw(t, "groups") {
		var group []string
		for range rapid.IntRange(1, 2).Draw(t, "terms") {
			term := rapid.SampledFrom(vocabulary).Draw(t, "word")
			switch rapid.IntRange(0, 4).Draw(t, "term") {
			case 0:
				term = "-" + term
			case 1:
				term = `"` + term + " " + rapid.SampledFrom(vocabulary).Draw(t, "next") + `"`
			case 2:
				term = strings.ToUpper(term)
			}
			group = append(group, term)
		}
		groups = append(groups, group)
		parts = append(parts, strings.Join(group, " "))
	}
	query = strings.Join(parts, " or ")
	if rapid.Bool().Draw(t, "extension") {
		query += " language:en"
	}
	return query, groups
}

// says is the meaning of a query, word by word.
func says(e *nostr.Event, groups [][]string) bool {
	said := " " + strings.Join(strings.Fields(words.Of(e)), " ") + " "
	return slices.ContainsFunc(groups, func(group []string) bool {
		return !slices.ContainsFunc(group, func(term string) bool {
			word, negated := strings.CutPrefix(strings.ToLower(term), "-")
			return strings.Contains(said, " "+strings.Trim(word, `"`)+" ") == negated
		})
	})
}

// What a search finds is what says the words, among what the filter matches and the reader may see; the best
// first.
func TestSearchEqualsReading(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		w.speak(rt)
		r := access.Reader{
			Keys: rapid.SliceOfNDistinct(rapid.SampledFrom(people), 0, 2, rapid.ID).Draw(rt, "reader"), Now: s.now().Unix(),
		}
		w.store(rt, db, &r)
		w.index(t.Context(), rt, s, r)
		for range 4 {
			f := drawFilter(rt, w)
			if rapid.Bool().Draw(rt, "words only") {
				f = &nostr.Filter{Limit: f.Limit}
			}
			query, groups := drawQuery(rt)
			plain := *f
			f.Search = query
			var want []*nostr.Event
			for _, e := range w.events {
				if words.IsIndexed(e.Kind) && !f.MatchesNothing && matches(&plain, e) && w.visible(e, r) && says(e, groups) {
					want = append(want, e)
				}
			}
			ranks := rank(t.Context(), rt, s, want, query)
			slices.SortFunc(want, func(a, b *nostr.Event) int {
				return cmp.Or(cmp.Compare(ranks[b.ID], ranks[a.ID]), byOrder(a, b))
			})
			n, err := s.count(t.Context(), r, []*nostr.Filter{f})
			require.NoError(rt, err)
			require.Equal(rt, len(want), n)

			_, found, rest, err := s.query(t.Context(), r, []*nostr.Filter{f}, nil)
			require.NoError(rt, err)
			require.Empty(rt, rest)
			got := []nostr.ID{}
			for e := range join(found, merge(rest)) {
				got = append(got, e.ID)
			}
			ids := []nostr.ID{}
			for _, e := range want[:min(len(want), s.limit(f))] {
				ids = append(ids, e.ID)
			}
			require.Equal(rt, ids, got, query)
		}
	})
}

// rank is what Postgres thinks of the texts, apart from any table.
func rank(ctx context.Context, t *rapid.T, s *Service, events []*nostr.Event, query string) map[nostr.ID]float32 {
	query, _ = words.In(query)
	ranks := map[nostr.ID]float32{}
	for _, e := range events {
		var r float32
		require.NoError(t, s.db.QueryRow(ctx, `SELECT ts_rank_cd(to_tsvector('simple', $1), websearch_to_tsquery('simple', $2))`,
			words.Of(e), query).Scan(&r))
		ranks[e.ID] = r
	}
	return ranks
}

// Searches come before other filters, each event once; queries without words find nothing; what was
// deleted is gone although its document is not.
func TestSearchAmongOtherFilters(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	community, other := db.Community(t, "open"), db.Community(t, "open")
	say := func(at int64, text string) *nostr.Event {
		return nostrtest.Event(t, "alice", nostrtest.Kind(nostr.KindChat), nostrtest.Content(text), nostrtest.CreatedAt(nostrtest.Epoch+at))
	}
	best, good, plain, deleted, foreign := say(1, "bees bees bees"), say(2, "bees and wax"), say(3, "wax"), say(4, "bees"), say(5, "bees")
	db.Insert(t, community, best, good, plain, deleted)
	db.Insert(t, other, foreign)
	for _, e := range []*nostr.Event{best, good, plain, deleted} {
		require.NoError(t, s.store.Index(t.Context(), []store.Document{{Community: community, ID: e.ID, CreatedAt: e.CreatedAt, Kind: e.Kind, Text: e.Content}}))
	}
	require.NoError(t, s.store.Index(t.Context(), []store.Document{{Community: other, ID: foreign.ID, CreatedAt: foreign.CreatedAt, Kind: 9, Text: "bees"}}))
	db.Exec(t, `DELETE FROM ingest.events WHERE id = $1`, deleted.ID[:])

	require.Equal(t, raws(best, good, plain), read(t, c, queryFor(community, principal(), nostr.Filter{}, nostr.Filter{Search: "bees"})))
	require.Equal(t, raws(best), read(t, c, queryFor(community, principal(), nostr.Filter{Search: "bees", Limit: limit(1)})))
	require.Equal(t, raws(plain, good), read(t, c, queryFor(community, principal(), nostr.Filter{Search: "wax"}, nostr.Filter{Search: "wax bees"})))
	for _, nothing := range []string{" ", "language:en", "--", `""`, "!", "'community 2'", "honey"} {
		require.Empty(t, read(t, c, queryFor(community, principal(), nostr.Filter{Search: nothing})), nothing)
	}
	rows, err := s.db.Query(t.Context(), `SHOW enable_bitmapscan`)
	require.NoError(t, err)
	setting, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, "off", setting, "for the statements that follow")
}

// A long text, and one of the longest words, do not fail.
func TestLongTextsAreIndexed(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	community := db.Community(t, "open")
	var b strings.Builder
	for i := 0; b.Len() < words.MaxBytes; i++ {
		for n := i; ; n /= 26 {
			b.WriteByte('a' + byte(n%26))
			if n < 26 {
				break
			}
		}
		b.WriteString(".io/x-")
		b.WriteByte('0' + byte(i%10))
		b.WriteByte(' ')
	}
	for i, text := range []string{b.String(), strings.Repeat("x", words.MaxBytes), strings.Repeat("é ", words.MaxBytes/3)} {
		e := nostrtest.Event(t, "alice", nostrtest.Kind(nostr.KindChat), nostrtest.Content(text), nostrtest.CreatedAt(nostrtest.Epoch+int64(i)))
		db.Insert(t, community, e)
		require.NoError(t, s.store.Index(t.Context(), []store.Document{{Community: community, ID: e.ID, CreatedAt: e.CreatedAt, Kind: e.Kind, Text: words.Of(e)}}))
	}
	_, found, _, err := s.query(t.Context(), access.Reader{Community: community, Now: testNow}, []*nostr.Filter{{Search: "é"}}, nil)
	require.NoError(t, err)
	require.Len(t, found[0], 1)
}

// A search by prefix takes its last word for the beginning of words, whatever else the query says.
func TestSearchByPrefix(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	community := db.Community(t, "open")
	texts := []string{"bees and beetles", "a beehive", "honey", "it's a bee's"}
	for i, text := range texts {
		e := nostrtest.Event(t, "alice", nostrtest.Kind(30023), nostrtest.CreatedAt(int64(100-i)), nostrtest.Tag("d", text), nostrtest.Content(text))
		db.Insert(t, community, e)
		require.NoError(t, s.store.Index(t.Context(), []store.Document{{
			Community: community, ID: e.ID, CreatedAt: e.CreatedAt, Kind: e.Kind, Text: words.Of(e),
		}}))
	}
	for search, want := range map[string][]string{
		"bee":             {texts[0], texts[1], texts[3]},
		"beet":            {texts[0]},
		"beehive":         {texts[1]},
		"and bee":         {texts[0]},
		"bee -hon":        {texts[3]},
		`hon -"bees and"`: {},
		`"a beeh`:         {texts[1]},
		"nothing":         {},
		"-":               {},
		"'":               {},
		"it's":            {texts[3]},
	} {
		f := &nostr.Filter{Search: search}
		_, found, _, err := s.query(t.Context(), access.Reader{Community: community, Now: testNow}, []*nostr.Filter{f}, []plan.Page{{Prefix: true}})
		require.NoError(t, err, search)
		got := []string{}
		for _, answer := range found {
			for i := range answer {
				e, err := wire.DecodeEvent(answer[i].Raw, wire.Limits{})
				require.NoError(t, err)
				got = append(got, e.Content)
			}
		}
		require.ElementsMatch(t, want, got, search)
	}
}
