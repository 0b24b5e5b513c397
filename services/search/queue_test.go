package search

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// TestListsOfModerators are of one community, for those who moderate it.
func TestListsOfModerators(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	serve(t, s)
	alice, bob, carol := nostrtest.PubKey("alice"), nostrtest.PubKey("bob"), nostrtest.PubKey("carol")
	community, other := db.Community(t, "open"), db.Community(t, "open")
	db.Promote(t, community, "owner", alice)
	db.Promote(t, other, "owner", bob)
	db.Ban(t, community, carol)
	db.Exec(t, `
INSERT INTO ingest.banned_pubkeys (community_id, pubkey, decided_by, expires_at) VALUES ($1, $2, $3, now())`, int64(community), bob[:], alice[:])
	db.Exec(t, `
INSERT INTO ingest.timeouts (community_id, pubkey, decided_by, decided_at, expires_at)
VALUES ($1, $2, $3, now() + interval '1 minute', now() + interval '1 hour'), ($1, $3, $3, now(), now())`, int64(community), bob[:], alice[:])
	db.Exec(t, `
INSERT INTO ingest.moderation_actions (community_id, action, actor, pubkey, reason) VALUES ($1, 'ban', $2, $3, 'one'), ($4, 'ban', $2, $3, 'other'), ($1, 'unban', $2, $3, 'two')`,
		int64(community), alice[:], carol[:], int64(other))
	report := func(of nostr.ID, at int64) *nostr.Event {
		return nostrtest.Event(t, "dave", nostrtest.Kind(nostr.KindReport), nostrtest.Tag("e", of.String(), "spam"), nostrtest.CreatedAt(nostrtest.Epoch+at))
	}
	open, byTarget, escalated := report(nostr.ID{1}, 1), report(nostr.ID{2}, 2), report(nostr.ID{3}, 4)
	since := report(nostr.ID{2}, 3) // its author has edited what was decided on
	db.Insert(t, community, open, byTarget, since, escalated)
	target := nostr.ID{2}
	db.Exec(t, `INSERT INTO ingest.decided_reports (community_id, target_id, decided_by, decided_at) VALUES ($1, $2, $3, to_timestamp($4))`,
		int64(community), target[:], alice[:], byTarget.CreatedAt)
	db.Exec(t, `
INSERT INTO ingest.report_decisions (community_id, report_id, status, action, decided_by) VALUES ($1, $2, 'escalated', 'escalate', $3)`,
		int64(community), escalated.ID[:], alice[:])

	statuses := func(limit uint32, status searchv1.ReportStatus) (list []searchv1.ReportStatus) {
		resp, err := s.ListReports(t.Context(), &searchv1.ListReportsRequest{Community: int64(community), Actor: alice[:], Limit: limit, Status: status})
		require.NoError(t, err)
		for _, r := range resp.GetReports() {
			require.Equal(t, r.GetStatus() == searchv1.ReportStatus_REPORT_STATUS_ESCALATED, r.GetDecideTime() != nil)
			list = append(list, r.GetStatus())
		}
		return list
	}
	require.Equal(t, []searchv1.ReportStatus{
		searchv1.ReportStatus_REPORT_STATUS_ESCALATED, searchv1.ReportStatus_REPORT_STATUS_OPEN,
		searchv1.ReportStatus_REPORT_STATUS_RESOLVED, searchv1.ReportStatus_REPORT_STATUS_OPEN,
	}, statuses(500, searchv1.ReportStatus_REPORT_STATUS_UNSPECIFIED))
	require.Len(t, statuses(2, searchv1.ReportStatus_REPORT_STATUS_UNSPECIFIED), 2)
	require.Len(t, statuses(3, searchv1.ReportStatus_REPORT_STATUS_OPEN), 2, "passing over what is decided")
	require.Empty(t, statuses(2, searchv1.ReportStatus_REPORT_STATUS_DISMISSED))

	actions, err := s.ListActions(t.Context(), &searchv1.ListActionsRequest{Community: int64(community), Actor: alice[:], Limit: 10})
	require.NoError(t, err)
	require.Len(t, actions.GetActions(), 2)
	require.Equal(t, "two", actions.GetActions()[0].GetReason())
	require.Nil(t, actions.GetActions()[0].GetExpireTime())
	restricted, err := s.ListRestrictions(t.Context(), &searchv1.ListRestrictionsRequest{Community: int64(community), Actor: alice[:], Limit: 10})
	require.NoError(t, err)
	require.Len(t, restricted.GetRestrictions(), 2, "what has ended is none")
	require.Equal(t, bob[:], restricted.GetRestrictions()[0].GetPubkey())
	require.False(t, restricted.GetRestrictions()[0].GetBanned())
	require.Equal(t, carol[:], restricted.GetRestrictions()[1].GetPubkey())
	require.True(t, restricted.GetRestrictions()[1].GetBanned())

	ask := func(actor nostr.PubKey, limit uint32) []error {
		_, a := s.ListReports(t.Context(), &searchv1.ListReportsRequest{Community: int64(community), Actor: actor[:], Limit: limit})
		_, b := s.ListActions(t.Context(), &searchv1.ListActionsRequest{Community: int64(community), Actor: actor[:], Limit: limit})
		_, c := s.ListRestrictions(t.Context(), &searchv1.ListRestrictionsRequest{Community: int64(community), Actor: actor[:], Limit: limit})
		return []error{a, b, c}
	}
	for _, who := range []nostr.PubKey{bob, carol, {1}} {
		for _, err := range ask(who, 1) {
			require.Equal(t, fault.Restricted, fault.ReasonOf(err))
		}
	}
	for _, limit := range []uint32{0, 501} {
		for _, err := range ask(alice, limit) {
			require.Equal(t, fault.Invalid, fault.ReasonOf(err))
		}
	}
	_, err = s.ListReports(t.Context(), &searchv1.ListReportsRequest{Community: int64(community), Actor: alice[:], Limit: 1, Status: 9})
	require.Equal(t, fault.Invalid, fault.ReasonOf(err))
}

// TestNobodyCrowdsOutReports has a member and its agent report without end, in number or in size: what others have reported
// stays in both lists, and a ban takes the flood out of them.
func TestNobodyCrowdsOutReports(t *testing.T) {
	cfg := DefaultConfig()
	cfg.AnswerBytes = 4 << 20
	s, db := newService(t, cfg)
	serve(t, s)
	alice, mallory, bot := nostrtest.PubKey("alice"), nostrtest.PubKey("mallory"), nostrtest.PubKey("bot")
	community := db.Community(t, "open")
	db.Promote(t, community, "owner", alice)
	db.Exec(t, `INSERT INTO ingest.agents (community_id, pubkey, owner) VALUES ($1, $2, $3)`, int64(community), bot[:], mallory[:])
	at := nostrtest.Epoch
	report := func(by string, of nostr.ID, content string) *nostr.Event {
		at++
		return nostrtest.Event(t, by, nostrtest.Kind(nostr.KindReport), nostrtest.Tag("e", of.String(), "spam"),
			nostrtest.CreatedAt(at), nostrtest.Content(content))
	}
	const share = 500
	serious := nostr.ID{1}
	all := []*nostr.Event{report("carol", serious, "")}
	flood := func(by string, n int, content string) {
		for i := range n {
			all = append(all, report(by, nostr.ID{2, byte(i >> 8), byte(i), by[0]}, content))
		}
	}
	flood("mallory", 40, strings.Repeat("x", 200<<10))
	flood("bot", 300, "")
	flood("mallory", 300, "")
	db.Insert(t, community, all...)
	lists := func() (reports []*searchv1.ReportEntry, events []*searchv1.ModerationEntry) {
		a, err := s.ListReports(t.Context(), &searchv1.ListReportsRequest{
			Community: int64(community), Actor: alice[:], Limit: 500, Status: searchv1.ReportStatus_REPORT_STATUS_OPEN,
		})
		require.NoError(t, err)
		b, err := s.ListModeration(t.Context(), &searchv1.ListModerationRequest{
			Community: int64(community), Actor: alice[:], List: searchv1.ModerationList_MODERATION_LIST_REPORTED_EVENTS,
		})
		require.NoError(t, err)
		return a.GetReports(), b.GetEntries()
	}
	_, events := lists()
	require.Len(t, events, share+1, "so many of mallory and its agent together")
	require.Equal(t, serious.String(), events[share].GetValue())

	db.Ban(t, community, mallory)
	reports, events := lists()
	require.Len(t, reports, 1)
	require.Len(t, events, 1)
	require.Equal(t, serious.String(), events[0].GetValue())

	// What moderators have decided on stays to be seen, also while its author is banned.
	dismissed := all[len(all)-1]
	db.Exec(t, `
INSERT INTO ingest.report_decisions (community_id, report_id, status, action, decided_by) VALUES ($1, $2, 'dismissed', 'dismiss', $3)`,
		int64(community), dismissed.ID[:], alice[:])
	db.Exec(t, `INSERT INTO ingest.decided_reports (community_id, target_id, decided_by, decided_at) VALUES ($1, $2, $3, to_timestamp($4))`,
		int64(community), target(t, dismissed), alice[:], dismissed.CreatedAt)
	again, events := lists()
	require.Len(t, again, len(reports), "it is not open")
	require.Len(t, events, 1)
	resp, err := s.ListReports(t.Context(), &searchv1.ListReportsRequest{Community: int64(community), Actor: alice[:], Limit: 500})
	require.NoError(t, err)
	require.Len(t, resp.GetReports(), 2)
	require.Equal(t, searchv1.ReportStatus_REPORT_STATUS_DISMISSED, resp.GetReports()[0].GetStatus())
	require.Equal(t, raws(dismissed)[0], string(resp.GetReports()[0].GetEvent()))
}

// target is the event that a report names.
func target(t *testing.T, report *nostr.Event) []byte {
	t.Helper()
	text, _ := report.Tags.First("e")
	id, err := nostr.ParseID(text)
	require.NoError(t, err)
	return id[:]
}
