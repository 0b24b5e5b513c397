package search

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/tenant"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/search/internal/fixture"
	"github.com/apiary-relay/apiary/services/search/internal/store"
	"github.com/apiary-relay/apiary/services/search/internal/words"
)

func TestResolveName(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	key := nostrtest.PubKey
	here := db.Community(t, "closed", key("alice"), key("bob"), key("carol"), key("dave"), key("erin"), key("frank"), key("gus"))
	elsewhere := db.Community(t, "open", key("mallory"))
	archived := db.Community(t, "open", key("olga"))
	db.Ban(t, here, key("dave"))
	gus, dave := key("gus"), key("dave")
	db.Exec(t, `INSERT INTO ingest.agents (community_id, pubkey, owner) VALUES ($1, $2, $3)`, int64(here), gus[:], dave[:])
	for i, name := range []string{"alice", "bob", "carol", "dave", "erin", "frank"} {
		member := key(name)
		db.Exec(t, `UPDATE ingest.community_members SET added_at = to_timestamp($3) WHERE community_id = $1 AND pubkey = $2`,
			int64(here), member[:], 1000+i)
	}
	profile := func(community tenant.ID, name, content string) {
		t.Helper()
		e := nostrtest.Event(t, name, nostrtest.Kind(nostr.KindMetadata), nostrtest.Content(content))
		db.Insert(t, community, e)
		require.NoError(t, s.store.Index(t.Context(), []store.Document{{
			Community: community, ID: e.ID, CreatedAt: e.CreatedAt, Kind: e.Kind, Text: words.Of(e),
		}}))
	}
	profile(here, "alice", `{"about":"not bob@acme.example","nip05":"Alice@ACME.example"}`)
	profile(here, "bob", `{"name":"Bob","nip05":"bob@acme.example"}`)
	profile(here, "carol", `{"nip05":"bob@acme.example"}`)
	profile(here, "dave", `{"nip05":"dave@acme.example"}`)
	profile(here, "erin", `erin@acme.example`)
	profile(here, "frank", `{"nip05":"_@acme.example:3000"}`)
	profile(here, "gus", `{"nip05":"gus@acme.example"}`)
	profile(here, "stranger", `{"nip05":"stranger@acme.example"}`)
	profile(archived, "olga", `{"nip05":"olga@acme.example"}`)
	ask := func(name string) (*searchv1.ResolveNameResponse, error) {
		return c.ResolveName(t.Context(), &searchv1.ResolveNameRequest{Community: int64(archived), Host: "acme.example", Name: name})
	}
	olga, err := ask("olga")
	require.NoError(t, err)
	require.NotEmpty(t, olga.GetPubkey())
	db.Exec(t, `UPDATE ingest.communities SET archived_at = now() WHERE id = $1`, int64(archived))
	olga, err = ask("olga")
	missing, missingErr := ask("nobody")
	require.Equal(t, missing.GetPubkey(), olga.GetPubkey())
	require.Equal(t, fault.ReasonOf(missingErr), fault.ReasonOf(err))
	profile(elsewhere, "mallory", `{"nip05":"mallory@acme.example"}`)

	for i, tt := range []struct{ name, host, want string }{
		{"alice", "acme.example", "alice"},
		{"bob", "acme.example", "bob"}, // not carol, who came later
		{"dave", "acme.example", ""},   // banned
		{"gus", "acme.example", ""},    // banned with its owner
		{"erin", "acme.example", ""},   // no claim
		{"_", "acme.example:3000", "frank"},
		{"_", "acme.example", ""},
		{"alice", "other.example", ""},
		{"stranger", "acme.example", ""}, // no member
		{"mallory", "acme.example", ""},  // of another community
		{"nobody", "acme.example", ""},
	} {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			resp, err := c.ResolveName(t.Context(), &searchv1.ResolveNameRequest{Community: int64(here), Name: tt.name, Host: tt.host})
			if tt.want == "" {
				require.Equal(t, fault.NotFound, fault.ReasonOf(err))
				return
			}
			require.NoError(t, err)
			want := key(tt.want)
			require.Equal(t, want[:], resp.GetPubkey())
		})
	}
	for _, name := range []string{"", "Alice", "a b", "a@b", "é"} {
		_, err := c.ResolveName(t.Context(), &searchv1.ResolveNameRequest{Community: int64(here), Name: name, Host: "acme.example"})
		require.Equal(t, fault.Invalid, fault.ReasonOf(err), name)
	}
}

// However many others claim a name, it is a member's; also of one whose ban is over.
func TestStrangersTakeNoNames(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	bob := nostrtest.PubKey("bob")
	here := db.Community(t, "open", bob)
	db.Exec(t, `INSERT INTO ingest.banned_pubkeys (community_id, pubkey, decided_by, expires_at) VALUES ($1, $2, $2, now() - interval '1 minute')`,
		int64(here), bob[:])
	const strangers = 600
	var events []*nostr.Event
	var documents []store.Document
	for i := range strangers + 1 {
		author := "bob"
		if i < strangers {
			author = "stranger " + strconv.Itoa(i)
		}
		e := nostrtest.Event(t, author, nostrtest.Kind(nostr.KindMetadata), nostrtest.Content(`{"nip05":"bob@acme.example"}`))
		events = append(events, e)
		documents = append(documents, store.Document{Community: here, ID: e.ID, CreatedAt: e.CreatedAt, Kind: e.Kind, Text: words.Of(e)})
	}
	db.Insert(t, here, events...)
	require.NoError(t, s.store.Index(t.Context(), documents))
	resp, err := c.ResolveName(t.Context(), &searchv1.ResolveNameRequest{Community: int64(here), Name: "bob", Host: "acme.example"})
	require.NoError(t, err)
	require.Equal(t, bob[:], resp.GetPubkey())
}

// Strangers may mention a name as often as they like: to look for whose it is costs so much time and no more.
func TestNamesAreLookedForBriefly(t *testing.T) {
	pc := pgtest.Config(t)
	pc.Role, pc.StatementTimeout, pc.LockTimeout = Role, 0, 0
	pool, err := postgres.NewPool(t.Context(), pc, postgres.PoolOptions{ReadOnly: true})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	cfg := DefaultConfig()
	cfg.QueryTimeout = time.Minute
	s, err := New(cfg, Deps{DB: pool})
	require.NoError(t, err)
	c, community := serve(t, s), fixture.New(t.Context(), pgtest.New(t)).Community(t, "open")
	lock, err := pgtest.New(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), `LOCK TABLE ingest.community_members IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	began := time.Now()
	_, err = c.ResolveName(t.Context(), &searchv1.ResolveNameRequest{Community: int64(community), Name: "alice", Host: "one.example"})
	require.Equal(t, fault.Timeout, fault.ReasonOf(err))
	require.Less(t, time.Since(began), cfg.QueryTimeout/2)
	require.NoError(t, lock.Rollback(t.Context()))
	_, err = c.ResolveName(t.Context(), &searchv1.ResolveNameRequest{Community: int64(community), Name: "alice", Host: "one.example"})
	require.Equal(t, fault.NotFound, fault.ReasonOf(err))
}
