package search

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/search/internal/fixture"
)

func TestQueryStreamsBoundedResponses(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	community := db.Community(t, "open")
	events := nostrtest.Filler(t, "alice", 100, nostrtest.Content(strings.Repeat("x", 2_500)))
	big := nostrtest.Event(t, "alice", nostrtest.Content(strings.Repeat("y", 400_000)), nostrtest.CreatedAt(nostrtest.Epoch+20))
	events = append(events, big)
	db.Insert(t, community, events...)

	answer, err := collect(c.Query(t.Context(), queryFor(community, principal(), nostr.Filter{})))
	require.NoError(t, err)
	require.Greater(t, len(answer), 4)
	require.Less(t, len(answer), len(events)/4)
	seen := 0
	for i, resp := range answer {
		require.Equal(t, i == 0, resp.GetSnapshot() != nil, "the snapshot comes first, and once")
		if len(resp.GetEvents()) > 1 {
			require.LessOrEqual(t, proto.Size(resp), 32<<10, "what grpc-go has a buffer for")
		}
		seen += len(resp.GetEvents())
	}
	require.Equal(t, len(events), seen)
}

func TestQueryBytesOfAnAnswer(t *testing.T) {
	cfg := DefaultConfig()
	cfg.AnswerBytes = 100_000
	s, db := newService(t, cfg)
	c := serve(t, s)
	community := db.Community(t, "open")
	large := nostrtest.Filler(t, "alice", 10, nostrtest.Content(strings.Repeat("x", 30_000)))
	db.Insert(t, community, large...)
	slices.SortFunc(large, byOrder)

	alice := nostr.Filter{Authors: []nostr.PubKey{nostrtest.PubKey("alice")}}
	require.Equal(t, raws(large[:4]...), read(t, c, queryFor(community, principal(), alice)), "what begins within the bytes")
	for n, want := range map[int]bool{3: false, 4: true, 5: true} {
		alice.Limit = &n
		answer, err := collect(c.Query(t.Context(), queryFor(community, principal(), alice)))
		require.NoError(t, err)
		require.Equal(t, want, answer[0].GetCut(), "a limit of %d", n)
	}
	alice.Limit = nil
	require.Equal(t, raws(large[:2]...), read(t, c, queryFor(community, principal(), alice, nostr.Filter{Kinds: []nostr.Kind{30}})),
		"filters share them")

	cfg.AnswerBytes = 1
	s, err := New(cfg, Deps{DB: s.db})
	require.NoError(t, err)
	require.Equal(t, raws(large[0]), read(t, serve(t, s), queryFor(community, principal(), alice)), "at least one event")
}

func byOrder(a, b *nostr.Event) int {
	if fixture.Before(a, b) {
		return -1
	}
	return 1
}

func TestQueryLimits(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Limit = 5
	s, db := newService(t, cfg)
	c := serve(t, s)
	community := db.Community(t, "open")
	events := nostrtest.Filler(t, "alice", 8)
	db.Insert(t, community, events...)
	slices.SortFunc(events, byOrder)
	for _, tt := range []struct {
		name  string
		limit *int
		want  int
	}{
		{"default", nil, 5},
		{"smaller", limit(2), 2},
		{"larger", limit(100), 5},
		{"none", limit(0), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := read(t, c, queryFor(community, principal(), nostr.Filter{Limit: tt.limit}))
			require.Equal(t, raws(events[:tt.want]...), got)
		})
	}
	t.Run("each filter has its own", func(t *testing.T) {
		got := read(t, c, queryFor(community, principal(),
			nostr.Filter{Limit: limit(3)}, nostr.Filter{IDs: []nostr.ID{events[7].ID, events[0].ID}}, nostr.Filter{Limit: limit(0)}))
		require.Equal(t, raws(events[0], events[1], events[2], events[7]), got)
	})
}

// An event with several of the values of a tag condition is one event, also where the limit counts.
func TestQueryCountsAnEventOfSeveralValuesOnce(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	community := db.Community(t, "open")
	both := nostrtest.Filler(t, "alice", 3, nostrtest.Tag("t", "a"), nostrtest.Tag("t", "b"), nostrtest.Tag("t", "a", "again"))
	db.Insert(t, community, both...)
	slices.SortFunc(both, byOrder)
	f := nostr.Filter{Tags: []nostr.TagCondition{{Name: 't', Values: []string{"b", "a", "a", "c"}}}, Limit: limit(3)}
	require.Equal(t, raws(both...), read(t, c, queryFor(community, principal(), f)))
	n, err := c.Count(t.Context(), countFor(community, principal(), f))
	require.NoError(t, err)
	require.Equal(t, uint64(3), n.GetCount())
	require.Empty(t, n.GetHll(), "NIP-45 has no offset for several values")
}

// The registers of two relays merge into those of all events, and hold nothing that the reader may not see.
func TestCountSketchesMerge(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	target := nostrtest.Event(t, "alice")
	reaction := func(author string, more ...nostrtest.Option) *nostr.Event {
		return nostrtest.Event(t, author, append(more, nostrtest.Kind(nostr.KindReaction), nostrtest.Tag("e", target.ID.String()))...)
	}
	one, other, both := db.Community(t, "open"), db.Community(t, "open"), db.Community(t, "open")
	first := []*nostr.Event{reaction("alice"), reaction("bob"), reaction("bob", nostrtest.Content("again"))}
	second := []*nostr.Event{reaction("carol"), reaction("bob")}
	db.Insert(t, one, first...)
	db.Insert(t, other, second...)
	db.Insert(t, both, append(first, second[0])...)
	db.Channel(t, both, "secret", "private")
	db.Insert(t, both, reaction("dave", nostrtest.Channel("secret")))
	sketch := func(in tenant.ID, count uint64) []byte {
		resp, err := c.Count(t.Context(), countFor(in, principal(), nostr.Filter{
			Kinds: []nostr.Kind{nostr.KindReaction}, Tags: []nostr.TagCondition{{Name: 'e', Values: []string{target.ID.String()}}},
		}))
		require.NoError(t, err)
		require.Equal(t, count, resp.GetCount())
		require.Len(t, resp.GetHll(), 256)
		return resp.GetHll()
	}
	merged, more := sketch(one, 3), sketch(other, 2)
	for i := range merged {
		merged[i] = max(merged[i], more[i])
	}
	require.Equal(t, merged, sketch(both, 4))
}

// What is hidden and what does not exist give the same bytes, for queries and counts.
func TestHiddenIsMissing(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	alice, bob := nostrtest.PubKey("alice"), nostrtest.PubKey("bob")
	community := db.Community(t, "open")
	closed := db.Community(t, "closed", alice)
	for _, in := range []struct{ h, visibility string }{{"secret", "private"}, {"empty", "open"}} {
		db.Channel(t, community, in.h, in.visibility, alice)
		db.Channel(t, closed, in.h, in.visibility, alice)
	}
	message := nostrtest.Event(t, "alice", nostrtest.Kind(nostr.KindChat), nostrtest.Channel("secret"))
	wrap := nostrtest.Event(t, "carol", nostrtest.Kind(nostr.KindGiftWrap), nostrtest.Tag("p", alice.String()))
	db.Insert(t, community, message, wrap)
	note := nostrtest.Event(t, "alice")
	db.Insert(t, closed, note)

	in := func(h string) nostr.Filter {
		return nostr.Filter{Tags: []nostr.TagCondition{{Name: 'h', Values: []string{h}}}}
	}
	require.Equal(t, raws(message), read(t, c, queryFor(community, principal(alice), in("secret"))))
	require.Equal(t, raws(note), read(t, c, queryFor(closed, principal(alice), nostr.Filter{})))
	require.ElementsMatch(t, raws(message, wrap), read(t, c, queryFor(community, principal(alice), nostr.Filter{})))

	for name, req := range map[string]*searchv1.QueryRequest{
		"hidden channel":         queryFor(community, principal(bob), in("secret")),
		"missing channel":        queryFor(community, principal(bob), in("nowhere")),
		"impossible channel":     queryFor(community, principal(bob), in("no\x00where")),
		"empty channel":          queryFor(community, principal(bob), in("empty")),
		"hidden event by id":     queryFor(community, principal(bob), nostr.Filter{IDs: []nostr.ID{message.ID, wrap.ID}}),
		"missing event by id":    queryFor(community, principal(bob), nostr.Filter{IDs: []nostr.ID{{1}, {2}}}),
		"wrap for another":       queryFor(community, principal(bob), nostr.Filter{Kinds: []nostr.Kind{nostr.KindGiftWrap}}),
		"nobody":                 queryFor(community, principal(), in("secret")),
		"closed community":       queryFor(closed, principal(bob), nostr.Filter{}),
		"missing community":      queryFor(closed+1000, principal(bob), nostr.Filter{}),
		"event of another":       queryFor(closed, principal(alice), nostr.Filter{IDs: []nostr.ID{message.ID}}),
		"nobody, closed":         queryFor(closed, principal(), nostr.Filter{}),
		"since after until":      queryFor(community, principal(alice), nostr.Filter{Since: at(2), Until: at(1)}),
		"channel of another one": queryFor(closed, principal(alice), in("secret")),
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := collect(c.Query(t.Context(), req))
			require.NoError(t, err)
			require.Len(t, answer, 1)
			answer[0].Snapshot = nil // which differs from moment to moment
			require.Empty(t, cmp.Diff(&searchv1.QueryResponse{}, answer[0], protocmp.Transform()))
			n, err := c.Count(t.Context(), &searchv1.CountRequest{
				Community: req.GetCommunity(), Principal: req.GetPrincipal(), Filters: req.GetFilters(),
			})
			require.NoError(t, err)
			require.Zero(t, n.GetCount())
		})
	}
}

func at(sec int64) *int64 { return &sec }

func TestCountRefusesWhatIsTooMuch(t *testing.T) {
	cfg := DefaultConfig()
	cfg.CountLimit = 5
	s, db := newService(t, cfg)
	c := serve(t, s)
	community := db.Community(t, "open")
	db.Insert(t, community, nostrtest.Filler(t, "alice", 5)...)
	all, alice := nostr.Filter{}, nostr.Filter{Authors: []nostr.PubKey{nostrtest.PubKey("alice")}}
	count := func(filters ...nostr.Filter) (uint64, error) {
		resp, err := c.Count(t.Context(), countFor(community, principal(), filters...))
		return resp.GetCount(), err
	}
	for _, filters := range [][]nostr.Filter{{all}, {all, alice}} {
		n, err := count(filters...)
		require.NoError(t, err)
		require.Equal(t, uint64(5), n)
	}
	db.Insert(t, community, nostrtest.Event(t, "bob"))
	for _, filters := range [][]nostr.Filter{{all}, {alice, all}} {
		_, err := count(filters...)
		require.Equal(t, fault.Restricted, fault.ReasonOf(err))
		require.Equal(t, "count filter requires narrower constraints", fault.Message(err))
	}
	n, err := count(alice)
	require.NoError(t, err)
	require.Equal(t, uint64(5), n)
}

func TestRequestsAreChecked(t *testing.T) {
	s, _ := newService(t, DefaultConfig())
	c := serve(t, s)
	ok := &commonv1.Filter{}
	values := make([]uint32, maxValues+1)
	for name, req := range map[string]*searchv1.QueryRequest{
		"no community":     {Filters: []*commonv1.Filter{ok}},
		"no filter":        {Community: 1},
		"too many filters": {Community: 1, Filters: slices.Repeat([]*commonv1.Filter{ok}, maxFilters+1)},
		"short key":        {Community: 1, Filters: []*commonv1.Filter{ok}, Principal: &commonv1.Principal{Pubkeys: [][]byte{{1}}}},
		"too many keys": {Community: 1, Filters: []*commonv1.Filter{ok}, Principal: principal(
			make([]nostr.PubKey, maxPrincipal+1)...)},
		"short id":        {Community: 1, Filters: []*commonv1.Filter{{Ids: [][]byte{{1}}}}},
		"too many values": {Community: 1, Filters: []*commonv1.Filter{{Kinds: values}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := collect(c.Query(t.Context(), req))
			require.Equal(t, fault.Invalid, fault.ReasonOf(err))
			_, err = c.Count(t.Context(), &searchv1.CountRequest{
				Community: req.GetCommunity(), Principal: req.GetPrincipal(), Filters: req.GetFilters(),
			})
			require.Equal(t, fault.Invalid, fault.ReasonOf(err))
		})
	}
}

func TestPagesAreChecked(t *testing.T) {
	s, _ := newService(t, DefaultConfig())
	c := serve(t, s)
	ok, until, id := &commonv1.Filter{}, &commonv1.Filter{Until: new(int64(testNow))}, make([]byte, 32)
	for name, req := range map[string]*searchv1.QueryRequest{
		"more pages than filters": {Filters: []*commonv1.Filter{ok}, Paging: []*searchv1.Paging{{}, {}}},
		"fewer":                   {Filters: []*commonv1.Filter{ok, ok}, Paging: []*searchv1.Paging{{}}},
		"a short id":              {Filters: []*commonv1.Filter{until}, Paging: []*searchv1.Paging{{AfterId: id[1:]}}},
		"no until":                {Filters: []*commonv1.Filter{ok}, Paging: []*searchv1.Paging{{AfterId: id}}},
		"in a search": {
			Filters: []*commonv1.Filter{{Search: "bees", Until: until.Until}}, Paging: []*searchv1.Paging{{AfterId: id}},
		},
		"top level of no channel": {Filters: []*commonv1.Filter{ok}, Paging: []*searchv1.Paging{{TopLevel: true}}},
		"too far":                 {Filters: []*commonv1.Filter{ok}, Paging: []*searchv1.Paging{{Offset: maxPaged + 1}}},
		"too far with the limit": {
			Filters: []*commonv1.Filter{{Limit: new(uint32(2))}}, Paging: []*searchv1.Paging{{Offset: maxPaged - 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			req.Community = 1
			_, err := collect(c.Query(t.Context(), req))
			require.Equal(t, fault.Invalid, fault.ReasonOf(err))
		})
	}
}

// The top level of a channel is what is no reply, and the replies to it that were broadcast.
func TestTopLevelOfAChannel(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	alice := nostrtest.PubKey("alice")
	community := db.Community(t, "open")
	db.Channel(t, community, "lobby", "open")
	db.Channel(t, community, "secret", "private", nostrtest.PubKey("bob"))
	event := func(at int64, channel string) *nostr.Event {
		e := nostrtest.Event(t, "alice", nostrtest.Kind(9), nostrtest.CreatedAt(at), nostrtest.Channel(channel))
		db.Insert(t, community, e)
		return e
	}
	root, reply, deep, broadcast, deepBroadcast, late := event(1, "lobby"), event(2, "lobby"), event(3, "lobby"), event(4, "lobby"), event(5, "lobby"), event(6, "lobby")
	event(7, "secret")
	for _, r := range []struct {
		e         *nostr.Event
		depth     int
		broadcast bool
	}{{reply, 1, false}, {deep, 2, false}, {broadcast, 1, true}, {deepBroadcast, 2, true}} {
		db.Exec(t, `INSERT INTO ingest.replies (community_id, id, root_id, parent_id, depth, broadcast, pubkey, created_at)
			VALUES ($1, $2, $3, $3, $4, $5, $6, $7)`, int64(community), r.e.ID[:], root.ID[:], r.depth, r.broadcast, alice[:], r.e.CreatedAt)
	}
	ask := func(channel string, limit int, paging *searchv1.Paging, change func(*nostr.Filter)) []string {
		f := nostr.Filter{Limit: &limit, Tags: []nostr.TagCondition{{Name: 'h', Values: []string{channel}}}}
		change(&f)
		req := queryFor(community, principal(alice), f)
		paging.TopLevel = true
		req.Paging = []*searchv1.Paging{paging}
		return read(t, c, req)
	}
	// Of one reply it is noted with the event that it is shown in its thread alone; those from before are looked up.
	db.Exec(t, `UPDATE ingest.events SET in_thread = true WHERE id = $1`, reply.ID[:])
	for _, change := range []func(*nostr.Filter){
		func(*nostr.Filter) {},
		func(f *nostr.Filter) { f.Kinds = []nostr.Kind{9} },
		func(f *nostr.Filter) { f.Authors = []nostr.PubKey{alice} },
		func(f *nostr.Filter) {
			f.IDs = []nostr.ID{root.ID, reply.ID, deep.ID, broadcast.ID, deepBroadcast.ID, late.ID}
		},
	} {
		require.Equal(t, raws(late, broadcast, root), ask("lobby", 10, &searchv1.Paging{}, change))
		require.Equal(t, raws(late, broadcast), ask("lobby", 2, &searchv1.Paging{}, change))
		require.Equal(t, raws(root), ask("lobby", 2, &searchv1.Paging{AfterId: broadcast.ID[:]}, func(f *nostr.Filter) {
			change(f)
			f.Until = &broadcast.CreatedAt
		}))
		require.Empty(t, ask("secret", 10, &searchv1.Paging{}, change))
		require.Empty(t, ask("nowhere", 10, &searchv1.Paging{}, change))
	}
}
