package store

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// hall is a fixture with a channel called hall of alice.
type hall struct {
	*fixture
	serial int
}

func newHall(t *testing.T, opts ...nostrtest.Option) *hall {
	t.Helper()
	h := &hall{fixture: newFixture(t).withKey()}
	h.must("alice", nostr.KindCreateGroup, append(opts, nostrtest.Tag("name", "Hall"))...)
	return h
}

// do has somebody send a command to the hall. No two are the same event.
func (h *hall) do(who string, kind nostr.Kind, opts ...nostrtest.Option) (policy.Verdict, *Row) {
	h.t.Helper()
	h.serial++
	opts = append(opts, nostrtest.Channel("hall"), nostrtest.Tag("serial", strconv.Itoa(h.serial)))
	return h.order(h.command(h.community, who, kind, opts...))
}

func (h *hall) must(who string, kind nostr.Kind, opts ...nostrtest.Option) *Row {
	h.t.Helper()
	v, row := h.do(who, kind, opts...)
	require.Equal(h.t, policy.Verdict{}, v)
	return row
}

func (h *hall) refuse(message, who string, kind nostr.Kind, opts ...nostrtest.Option) {
	h.t.Helper()
	v, row := h.do(who, kind, opts...)
	require.Equal(h.t, message, v.Message)
	require.False(h.t, v.Accepted())
	require.Nil(h.t, row)
}

func (h *hall) members() map[string]string { return h.membersOf("hall") }

// membersOf returns the roles that the database has, by key.
func (f *fixture) membersOf(channel string) map[string]string {
	f.t.Helper()
	rows, err := f.admin.Query(f.t.Context(), `
SELECT encode(m.pubkey, 'hex'), m.role FROM ingest.channel_members m
JOIN ingest.channels c ON c.community_id = m.community_id AND c.id = m.channel_id
WHERE c.h = $1 AND c.community_id = $2`, channel, f.community)
	require.NoError(f.t, err)
	got := map[string]string{}
	for rows.Next() {
		var key, role string
		require.NoError(f.t, rows.Scan(&key, &role))
		got[key] = role
	}
	require.NoError(f.t, rows.Err())
	return got
}

// holding makes what membersOf returns from names.
func holding(pairs ...string) map[string]string {
	want := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		want[nostrtest.PubKey(pairs[i]).String()] = pairs[i+1]
	}
	return want
}

func (h *hall) channelVersion() uint64 {
	h.t.Helper()
	var v uint64
	require.NoError(h.t, h.admin.QueryRow(h.t.Context(), `SELECT acl_version FROM ingest.channels WHERE h = 'hall'`).Scan(&v))
	return v
}

// state returns the one stored event of a kind that the relay has signed for a channel; nil if there is none.
func (f *fixture) state(channel string, kind nostr.Kind) *nostr.Event {
	f.t.Helper()
	rows, err := f.admin.Query(f.t.Context(), `
SELECT e.raw FROM ingest.events e JOIN ingest.channels c ON c.community_id = e.community_id AND c.id = e.channel_id
WHERE c.h = $1 AND e.kind = $2 AND c.community_id = $3`, channel, kind, f.community)
	require.NoError(f.t, err)
	var found *nostr.Event
	for rows.Next() {
		require.Nil(f.t, found, "one version")
		var raw []byte
		require.NoError(f.t, rows.Scan(&raw))
		found, err = wire.DecodeEvent(raw, wire.DefaultLimits())
		require.NoError(f.t, err)
		require.NoError(f.t, found.Verify())
		require.Equal(f.t, nostrtest.PubKey("relay"), found.PubKey)
	}
	require.NoError(f.t, rows.Err())
	return found
}

// requireSnapshots checks that what the relay has signed of a channel is what the database has.
func (f *fixture) requireSnapshots(channel string) {
	f.t.Helper()
	admins, listed := map[string]string{}, map[string]string{}
	for key, role := range f.membersOf(channel) {
		if policy.ChannelRole(role).Manages() {
			admins[key] = role
		}
	}
	got := map[string]string{}
	for tag := range f.state(channel, nostr.KindGroupAdmins).Tags.All("p") {
		got[tag[1]] = tag[2]
	}
	require.Equal(f.t, admins, got)
	for tag := range f.state(channel, nostr.KindGroupMembers).Tags.All("p") {
		listed[tag[1]] = tag[3]
	}
	require.Equal(f.t, f.membersOf(channel), listed)
	var private, archived bool
	require.NoError(f.t, f.admin.QueryRow(f.t.Context(), `
SELECT visibility = 'private', archived_at IS NOT NULL FROM ingest.channels WHERE h = $1 AND community_id = $2`, channel, f.community).Scan(&private, &archived))
	meta := f.state(channel, nostr.KindGroupMetadata).Tags
	require.Equal(f.t, private, meta.Count("private") == 1)
	require.Equal(f.t, private, meta.Count("closed") == 1)
	require.Equal(f.t, !private, meta.Count("public") == 1)
	require.Equal(f.t, archived, meta.Count("archived") == 1)
}

// said returns what follow-ups of some kinds say: their kind, their content, and whom they name.
type said struct {
	kind    nostr.Kind
	content map[string]any
	p       string
}

func told(t *testing.T, row *Row, kinds ...nostr.Kind) (list []said) {
	t.Helper()
	for _, l := range envelopes(t, row) {
		for _, e := range l {
			list = append(list, toldBy(t, e, kinds)...)
		}
	}
	return list
}

func toldBy(t *testing.T, e *commonv1.Envelope, kinds []nostr.Kind) (list []said) {
	t.Helper()
	ev, err := wire.DecodeEvent(e.GetRaw(), wire.DefaultLimits())
	require.NoError(t, err)
	for _, k := range kinds {
		if ev.Kind != k {
			continue
		}
		require.Equal(t, nostrtest.PubKey("relay"), ev.PubKey)
		s := said{kind: k}
		if ev.Content != "" {
			require.NoError(t, json.Unmarshal([]byte(ev.Content), &s.content))
		}
		s.p, _ = ev.Tags.First("p")
		channel, _ := ev.Tags.First("h")
		require.Equal(t, "hall", channel)
		require.Equal(t, k == nostr.KindMemberAdded || k == nostr.KindMemberRemoved, e.GetHeader().GetChannel() == "")
		list = append(list, s)
	}
	return list
}
