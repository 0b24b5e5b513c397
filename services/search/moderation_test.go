package search

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

func TestListModeration(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	alice, bob, carol, dave := nostrtest.PubKey("alice"), nostrtest.PubKey("bob"), nostrtest.PubKey("carol"), nostrtest.PubKey("dave")
	community, other := db.Community(t, "open", carol), db.Community(t, "open")
	db.Promote(t, community, "owner", alice)
	db.Promote(t, other, "owner", bob)
	db.Exec(t, `UPDATE ingest.community_members SET added_at = now() - interval '1 day' WHERE pubkey = $1`, alice[:])
	db.Ban(t, community, dave)
	db.Ban(t, other, carol)
	id := nostr.ID{7}
	db.Exec(t, `INSERT INTO ingest.banned_events (community_id, id, reason, decided_by) VALUES ($1, $2, 'spam', $3)`, int64(community), id[:], alice[:])
	db.Exec(t, `INSERT INTO ingest.allowed_kinds VALUES ($1, 9), ($1, 7)`, int64(community))
	db.Exec(t, `INSERT INTO ingest.blocked_networks (community_id, network, reason, decided_by) VALUES ($1, '10.0.0.0/8', 'flood', $2)`, int64(community), alice[:])

	target, decided, banned, hidden, again := nostr.ID{1}, nostr.ID{2}, nostr.ID{7}, nostr.ID{4}, nostr.ID{5}
	report := func(author string, at int64, of nostr.ID, kind, content string, more ...nostrtest.Option) *nostr.Event {
		return nostrtest.Event(t, author, append(more, nostrtest.Kind(nostr.KindReport), nostrtest.CreatedAt(nostrtest.Epoch+at),
			nostrtest.Tag("e", of.String(), kind), nostrtest.Tag("p", bob.String()), nostrtest.Content(content))...)
	}
	db.Channel(t, community, "secret", "private", bob)
	long := report("carol", 3, nostr.ID{3}, "", strings.Repeat("é", 400))
	db.Insert(t, community, report("bob", 1, target, "spam", "older"), report("carol", 2, target, "nudity", ""), long,
		report("carol", 4, decided, "spam", ""), report("carol", 5, banned, "spam", ""),
		report("carol", 7, again, "spam", "at first"), report("carol", 9, again, "illegal", "since then"),
		report("bob", 6, hidden, "spam", "", nostrtest.Channel("secret")))
	db.Exec(t, `INSERT INTO ingest.decided_reports (community_id, target_id, decided_by) VALUES ($1, $2, $3)`, int64(community), decided[:], alice[:])
	db.Exec(t, `INSERT INTO ingest.decided_reports (community_id, target_id, decided_by, decided_at) VALUES ($1, $2, $3, to_timestamp($4))`,
		int64(community), again[:], alice[:], nostrtest.Epoch+8)

	list := func(actor nostr.PubKey, which searchv1.ModerationList) ([]*searchv1.ModerationEntry, error) {
		resp, err := c.ListModeration(t.Context(), &searchv1.ListModerationRequest{Community: int64(community), Actor: actor[:], List: which})
		return resp.GetEntries(), err
	}
	entry := func(value, reason string) *searchv1.ModerationEntry {
		return &searchv1.ModerationEntry{Value: value, Reason: reason}
	}
	for which, want := range map[searchv1.ModerationList][]*searchv1.ModerationEntry{
		searchv1.ModerationList_MODERATION_LIST_BANNED_PUBKEYS:  {entry(dave.String(), "rude")},
		searchv1.ModerationList_MODERATION_LIST_ALLOWED_PUBKEYS: {entry(carol.String(), ""), entry(alice.String(), "")},
		searchv1.ModerationList_MODERATION_LIST_BANNED_EVENTS:   {entry(id.String(), "spam")},
		searchv1.ModerationList_MODERATION_LIST_ALLOWED_KINDS:   {entry("7", ""), entry("9", "")},
		searchv1.ModerationList_MODERATION_LIST_BLOCKED_IPS:     {entry("10.0.0.0/8", "flood")},
		searchv1.ModerationList_MODERATION_LIST_REPORTED_EVENTS: {entry(again.String(), "illegal: since then"), entry(nostr.ID{3}.String(), strings.Repeat("é", 256)), entry(target.String(), "nudity")},
	} {
		got, err := list(alice, which)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, got, protocmp.Transform()), which)
		for name, actor := range map[string]nostr.PubKey{"member": carol, "owner of another": bob, "stranger": {1}} {
			_, err := list(actor, which)
			require.Equal(t, fault.Restricted, fault.ReasonOf(err), name)
		}
	}
	db.Promote(t, community, "admin", carol)
	_, err := list(carol, searchv1.ModerationList_MODERATION_LIST_BANNED_EVENTS)
	require.NoError(t, err)
	db.Ban(t, community, carol)
	_, err = list(carol, searchv1.ModerationList_MODERATION_LIST_BANNED_EVENTS)
	require.Equal(t, fault.Restricted, fault.ReasonOf(err), "banned")

	_, err = list(alice, searchv1.ModerationList_MODERATION_LIST_UNSPECIFIED)
	require.Equal(t, fault.Invalid, fault.ReasonOf(err))
	_, err = c.ListModeration(t.Context(), &searchv1.ListModerationRequest{Community: int64(community)})
	require.Equal(t, fault.Invalid, fault.ReasonOf(err))
}
