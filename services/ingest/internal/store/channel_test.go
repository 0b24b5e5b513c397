package store

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

func TestANewChannelIsSigned(t *testing.T) {
	h := newHall(t, nostrtest.Tag("about", "a < b"), nostrtest.Tag("picture", "p"), nostrtest.Tag("ttl", "3600"), nostrtest.Tag("channel_type", "forum"), nostrtest.Tag("private"))
	h.requireSnapshots("hall")
	require.Equal(t, holding("alice", "owner"), h.members())
	meta := h.state("hall", nostr.KindGroupMetadata)
	for name, want := range map[string]string{"d": "hall", "name": "Hall", "about": "a < b", "picture": "p", "t": "forum", "ttl": "3600"} {
		got, _ := meta.Tags.First(name)
		require.Equal(t, want, got, name)
	}
	deadline, _ := meta.Tags.First("ttl_deadline")
	at, err := time.Parse(time.RFC3339, deadline)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), at, time.Minute)
	require.Equal(t, 5, h.state("hall", nostr.KindGroupRoles).Tags.Count("role"))
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.events WHERE kind = 44100 AND channel_id IS NULL`))
	h.refuse("channel already exists", "bob", nostr.KindCreateGroup)
	require.Zero(t, h.count(`SELECT count(*) FROM ingest.channels WHERE snapshot_due`))
}

// The relay chooses the id of a channel whose creator has not, the same one if the creation is sent again.
func TestANewChannelGetsAnID(t *testing.T) {
	f := newFixture(t).withKey()
	c := f.command(f.community, "alice", nostr.KindCreateGroup, nostrtest.Tag("name", "Hall"))
	v, _ := f.order(c)
	require.True(t, v.Accepted())
	var response struct {
		Channel string `json:"channel_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(v.Message, "response:")), &response))
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, response.Channel)
	require.Equal(t, holding("alice", "owner"), f.membersOf(response.Channel))
	f.requireSnapshots(response.Channel)
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.events WHERE kind = 9007 AND channel_id IS NOT NULL`))
	v, _ = f.order(c)
	require.Equal(t, policy.Processed, v)
}

func TestPutUser(t *testing.T) {
	h := newHall(t)
	before := h.channelVersion()
	row := h.must("alice", nostr.KindPutUser, p("bob"))
	alice, bob := nostrtest.PubKey("alice").String(), nostrtest.PubKey("bob").String()
	require.ElementsMatch(t, []said{
		{nostr.KindSystemMessage, map[string]any{"type": "member_joined", "actor": alice, "target": bob}, ""},
		{nostr.KindMemberAdded, map[string]any{"type": "member_added", "channel_id": "hall", "actor": alice}, bob},
	}, told(t, row, nostr.KindSystemMessage, nostr.KindMemberAdded))
	require.Equal(t, before+1, h.channelVersion())
	for _, list := range envelopes(t, row) {
		for _, e := range list {
			if e.GetHeader().GetChannel() != "" {
				require.Equal(t, before+1, e.GetHeader().GetChannelAclVersion())
			}
		}
	}
	h.must("stranger", nostr.KindPutUser, p("carol"), nostrtest.Tag("role", "bot")) // anybody brings anybody into an open channel
	h.must("bob", nostr.KindPutUser, p("bob"))                                      // nothing changes
	h.must("alice", nostr.KindPutUser, p("dave"), nostrtest.Tag("role", "admin"))
	require.Equal(t, holding("alice", "owner", "bob", "member", "carol", "bot", "dave", "admin"), h.members())
	h.requireSnapshots("hall")

	admin, owner, guest := nostrtest.Tag("role", "admin"), nostrtest.Tag("role", "owner"), nostrtest.Tag("role", "guest")
	h.refuse("only owners/admins may make others owners/admins", "bob", nostr.KindPutUser, p("eve"), admin)
	h.refuse("only owners/admins may make others owners/admins", "eve", nostr.KindPutUser, p("eve"), owner)
	h.refuse("only owners/admins may change an active member's role", "bob", nostr.KindPutUser, p("bob"), admin)
	h.refuse("only owners may say who is an owner", "dave", nostr.KindPutUser, p("dave"), owner)
	h.refuse("cannot demote the last owner — transfer ownership first", "alice", nostr.KindPutUser, p("alice"), guest)
	h.refuse("cannot demote the last owner — transfer ownership first", "dave", nostr.KindPutUser, p("alice"), guest)
	h.must("dave", nostr.KindPutUser, p("bob"), guest)
	h.must("alice", nostr.KindPutUser, p("bob"), owner)
	h.refuse("only owners may say who is an owner", "dave", nostr.KindPutUser, p("alice"), guest)
	h.must("alice", nostr.KindPutUser, p("alice"), guest)
	require.Equal(t, holding("alice", "guest", "bob", "owner", "carol", "bot", "dave", "admin"), h.members())
	h.requireSnapshots("hall")

	h.moderate(BanPubKey(nostrtest.PubKey("mallory")))
	h.refuse("target is not a relay member", "bob", nostr.KindPutUser, p("mallory"))
}

func TestPutUserInAPrivateChannel(t *testing.T) {
	h := newHall(t, nostrtest.Tag("private"))
	h.must("alice", nostr.KindPutUser, p("admin"), nostrtest.Tag("role", "admin"))
	h.must("admin", nostr.KindPutUser, p("bob"))
	h.refuse("only owners/admins may add private-channel members", "bob", nostr.KindPutUser, p("carol"))
	h.refuse("only owners/admins may add private-channel members", "bob", nostr.KindPutUser, p("carol"), nostrtest.Tag("role", "admin"))
	h.refuse("only owners/admins may add private-channel members", "bob", nostr.KindPutUser, p("admin"))
	h.must("bob", nostr.KindPutUser, p("bob"))
	h.refuse("not a channel member", "eve", nostr.KindPutUser, p("eve"))
	h.refuse("not a channel member", "eve", nostr.KindPutUser, p("bob"))
	require.Equal(t, holding("alice", "owner", "admin", "admin", "bob", "member"), h.members())
}

// Whoever may not use the community is not brought into its channels.
func TestPutUserInAClosedCommunity(t *testing.T) {
	h := newHall(t)
	closed := h.newCommunity("closed.example", AccessClosed)
	do := func(who string, kind nostr.Kind, opts ...nostrtest.Option) policy.Verdict {
		h.serial++
		v, _ := h.order(h.command(closed, who, kind, append(opts, nostrtest.Channel("hall"), nostrtest.Tag("serial", strconv.Itoa(h.serial)))...))
		return v
	}
	require.Equal(t, policy.Verdict{}, do("owner", nostr.KindCreateGroup))
	require.Equal(t, "target is not a relay member", do("owner", nostr.KindPutUser, p("bob")).Message)
	require.Equal(t, policy.NotMember, do("bob", nostr.KindJoinRequest))
	h.put(closed, "bob", policy.RoleMember)
	require.Equal(t, policy.Verdict{}, do("owner", nostr.KindPutUser, p("bob")))
	require.Equal(t, holding("alice", "owner"), h.members(), "the other community has a channel of this id too")
}

func TestAgentsSayWhoMayAddThem(t *testing.T) {
	h := newHall(t)
	for name, policy := range map[string]string{"anyone": "anyone", "nobody": "nobody", "owned": "owner_only"} {
		h.accept(h.candidate(name, nostrtest.Kind(nostr.KindAgentProfile), nostrtest.Content(`{"channel_add_policy":"`+policy+`"}`)))
	}
	h.must("alice", nostr.KindPutUser, p("anyone"))
	h.refuse("policy:nobody — this agent has disabled external channel additions", "alice", nostr.KindPutUser, p("nobody"))
	h.refuse("policy:owner_only — this agent has no owner set", "alice", nostr.KindPutUser, p("owned"))
	h.must("nobody", nostr.KindPutUser, p("nobody"))
	h.must("alice", nostr.KindPutUser, p("nobody"), nostrtest.Tag("role", "bot")) // it is there already
	h.must("owned", nostr.KindJoinRequest)
}

func TestRemoveUserAndLeave(t *testing.T) {
	h := newHall(t, nostrtest.Tag("private"))
	for name, role := range map[string]string{"admin": "admin", "bob": "member", "carol": "member", "dave": "bot", "second": "owner"} {
		h.must("alice", nostr.KindPutUser, p(name), nostrtest.Tag("role", role))
	}
	h.refuse("actor not authorized", "bob", nostr.KindRemoveUser, p("carol"))
	h.refuse("not a channel member", "eve", nostr.KindRemoveUser, p("carol"))
	h.refuse("target is not an active member", "admin", nostr.KindRemoveUser, p("eve"))
	h.refuse("only owners may say who is an owner", "admin", nostr.KindRemoveUser, p("second"))
	h.must("alice", nostr.KindRemoveUser, p("second"))
	h.refuse("cannot remove the last owner", "admin", nostr.KindRemoveUser, p("alice"))
	h.refuse("cannot remove the last owner", "alice", nostr.KindRemoveUser, p("alice"))
	h.refuse("cannot remove the last owner", "alice", nostr.KindLeaveRequest)
	before := h.channelVersion()
	row := h.must("admin", nostr.KindRemoveUser, p("bob"))
	require.Equal(t, before+1, h.channelVersion())
	admin, bob, carol := nostrtest.PubKey("admin").String(), nostrtest.PubKey("bob").String(), nostrtest.PubKey("carol").String()
	require.ElementsMatch(t, []said{
		{nostr.KindSystemMessage, map[string]any{"type": "member_removed", "actor": admin, "target": bob}, ""},
		{nostr.KindMemberRemoved, map[string]any{"type": "member_removed", "channel_id": "hall", "actor": admin}, bob},
	}, told(t, row, nostr.KindSystemMessage, nostr.KindMemberRemoved))

	row = h.must("carol", nostr.KindLeaveRequest)
	require.ElementsMatch(t, []said{
		{nostr.KindSystemMessage, map[string]any{"type": "member_left", "actor": carol, "target": carol}, ""},
		{nostr.KindMemberRemoved, map[string]any{"type": "member_removed", "channel_id": "hall", "actor": carol}, carol},
	}, told(t, row, nostr.KindSystemMessage, nostr.KindMemberRemoved))
	require.Equal(t, []said{{nostr.KindRemoveUser, nil, carol}}, told(t, row, nostr.KindRemoveUser)) // clients read these (NIP-29)
	h.must("dave", nostr.KindRemoveUser, p("dave"))
	h.refuse("not a channel member", "carol", nostr.KindLeaveRequest)
	require.Equal(t, holding("alice", "owner", "admin", "admin"), h.members())
	h.requireSnapshots("hall")
}

func TestJoin(t *testing.T) {
	h := newHall(t)
	row := h.must("bob", nostr.KindJoinRequest)
	bob := nostrtest.PubKey("bob").String()
	require.Len(t, told(t, row, nostr.KindPutUser, nostr.KindSystemMessage, nostr.KindMemberAdded), 3)
	require.Equal(t, []said{{nostr.KindPutUser, nil, bob}}, told(t, row, nostr.KindPutUser))
	v, _ := h.do("bob", nostr.KindJoinRequest)
	require.Equal(t, policy.InChannel, v)
	h.requireSnapshots("hall")

	h.must("alice", nostr.KindEditMetadata, nostrtest.Tag("visibility", "private"))
	v, _ = h.do("carol", nostr.KindJoinRequest)
	require.Equal(t, policy.JoinRefused, v)
	v, _ = h.order(h.command(h.community, "carol", nostr.KindJoinRequest, nostrtest.Channel("elsewhere")))
	require.Equal(t, policy.JoinRefused, v)
}

func TestChannelInvites(t *testing.T) {
	h := newHall(t, nostrtest.Tag("private"))
	code := func(s string) nostrtest.Option { return nostrtest.Tag("code", s) }
	h.refuse("not a channel member", "eve", nostr.KindCreateInvite, code("open sesame"))
	v, row := h.do("alice", nostr.KindCreateInvite, code("open sesame"))
	require.Equal(t, policy.Verdict{}, v)
	require.Nil(t, row, "nobody is told the code")
	h.refuse(policy.JoinRefused.Message, "bob", nostr.KindJoinRequest, code("open barley"))
	h.must("bob", nostr.KindJoinRequest, code("open sesame"))
	h.refuse("actor not authorized", "bob", nostr.KindCreateInvite, code("open wheat"))
	require.Equal(t, holding("alice", "owner", "bob", "member"), h.members())

	h.must("alice", nostr.KindCreateGroup, nostrtest.Channel("other"), nostrtest.Tag("private"))
	v, _ = h.order(h.command(h.community, "carol", nostr.KindJoinRequest, nostrtest.Channel("other"), code("open sesame")))
	require.Equal(t, policy.JoinRefused, v, "a code of another channel")
	_, err := h.admin.Exec(t.Context(), `UPDATE ingest.channel_invites SET expires_at = now() - interval '1 minute'`)
	require.NoError(t, err)
	h.refuse(policy.JoinRefused.Message, "carol", nostr.KindJoinRequest, code("open sesame"))
	n, err := h.ForgetChannelInvites(t.Context(), time.Now(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func TestEditChannel(t *testing.T) {
	h := newHall(t)
	h.must("alice", nostr.KindPutUser, p("bob"))
	tag, alice := nostrtest.Tag, nostrtest.PubKey("alice").String()
	h.refuse("not a member", "eve", nostr.KindEditMetadata, tag("topic", "x"))
	h.refuse("actor not authorized", "bob", nostr.KindEditMetadata, tag("topic", "x"), tag("name", "x"))
	row := h.must("bob", nostr.KindEditMetadata, tag("topic", "bees"), tag("purpose", "honey"))
	bob := nostrtest.PubKey("bob").String()
	require.ElementsMatch(t, []said{
		{nostr.KindSystemMessage, map[string]any{"type": "topic_changed", "actor": bob, "topic": "bees"}, ""},
		{nostr.KindSystemMessage, map[string]any{"type": "purpose_changed", "actor": bob, "purpose": "honey"}, ""},
	}, told(t, row, nostr.KindSystemMessage))
	before := h.channelVersion()
	row = h.must("alice", nostr.KindEditMetadata, tag("visibility", "private"), tag("ttl", "60"), tag("about", "all of it"))
	require.ElementsMatch(t, []said{
		{nostr.KindSystemMessage, map[string]any{"type": "visibility_changed", "actor": alice, "visibility": "private"}, ""},
		{nostr.KindSystemMessage, map[string]any{"type": "ttl_changed", "actor": alice, "ttl_seconds": 60.0}, ""},
	}, told(t, row, nostr.KindSystemMessage))
	require.Equal(t, before+1, h.channelVersion())
	meta := h.state("hall", nostr.KindGroupMetadata).Tags
	for name, want := range map[string]string{"name": "Hall", "about": "all of it", "topic": "bees", "purpose": "honey", "ttl": "60"} {
		got, _ := meta.First(name)
		require.Equal(t, want, got)
	}
	h.requireSnapshots("hall")

	row = h.must("alice", nostr.KindEditMetadata, tag("archived", "true"), tag("ttl", ""))
	require.Len(t, told(t, row, nostr.KindSystemMessage), 2)
	h.requireSnapshots("hall")
	h.refuse("channel is archived", "alice", nostr.KindEditMetadata, tag("name", "x"))
	h.refuse("channel is archived", "bob", nostr.KindLeaveRequest)
	h.refuse("channel is archived", "alice", nostr.KindDeleteGroup)
	require.Equal(t, "channel is archived", h.verdict(h.candidate("bob", nostrtest.Kind(9), nostrtest.Channel("hall"))).Message)
	row = h.must("alice", nostr.KindEditMetadata, tag("archived", "false"))
	require.Equal(t, []said{{nostr.KindSystemMessage, map[string]any{"type": "channel_unarchived", "actor": alice}, ""}}, told(t, row, nostr.KindSystemMessage))
	added := told(t, row, nostr.KindMemberAdded)
	require.Len(t, added, 2, "everybody subscribes again")
	h.accept(h.candidate("bob", nostrtest.Kind(9), nostrtest.Channel("hall")))
}

func TestDeleteChannel(t *testing.T) {
	h := newHall(t)
	h.must("alice", nostr.KindPutUser, p("bob"), nostrtest.Tag("role", "admin"))
	chat := h.candidate("bob", nostrtest.Kind(9), nostrtest.Channel("hall"))
	h.accept(chat)
	h.refuse("only owner can delete group", "bob", nostr.KindDeleteGroup)
	row := h.must("alice", nostr.KindDeleteGroup)
	require.Len(t, told(t, row, nostr.KindMemberRemoved), 2)
	require.Zero(t, h.count(`SELECT count(*) FROM ingest.channels`))
	require.Zero(t, h.count(`SELECT count(*) FROM ingest.events e WHERE e.channel_id IS NULL AND kind NOT IN (44100, 44101)`), "nothing became global")
	h.refuse("not a channel member", "alice", nostr.KindEditMetadata, nostrtest.Tag("name", "x"))

	// Another channel of the same id has nothing of the first one.
	h.must("bob", nostr.KindCreateGroup, nostrtest.Tag("name", "Second"))
	require.Equal(t, holding("bob", "owner"), h.members())
	h.requireSnapshots("hall")

	sweep := func(before time.Time) int {
		n, err := h.SweepDeleted(t.Context(), before, 3)
		require.NoError(t, err)
		return n
	}
	require.Zero(t, sweep(time.Now().Add(-time.Hour)), "what was sent once is still known")
	for sweep(time.Now().Add(time.Minute)) > 0 {
	}
	require.Zero(t, h.count(`SELECT count(*) FROM ingest.deleted_channels`))
	require.Zero(t, h.count(`SELECT count(*) FROM ingest.events WHERE id = $1`, chat.Event.ID[:]))
	require.Zero(t, h.count(`SELECT count(*) FROM ingest.events e WHERE channel_id IS NOT NULL AND NOT EXISTS (SELECT FROM ingest.channels c WHERE c.id = e.channel_id)`))
	h.requireSnapshots("hall")
}

func TestDeleteEventOfAChannel(t *testing.T) {
	h := newHall(t)
	h.must("alice", nostr.KindPutUser, p("bob"))
	e := func(c *policy.Candidate) nostrtest.Option { return nostrtest.Tag("e", c.Event.ID.String()) }
	chat := func(who, text string) *policy.Candidate {
		c := h.candidate(who, nostrtest.Kind(9), nostrtest.Channel("hall"), nostrtest.Content(text))
		h.accept(c)
		return c
	}
	own, others, outside := chat("bob", "own"), chat("carol", "others"), h.candidate("carol", nostrtest.Content("outside"))
	h.accept(outside)
	h.refuse("target event not found or not yours to delete", "bob", nostr.KindDeleteEvent, e(others))
	h.refuse("target event not found or not yours to delete", "alice", nostr.KindDeleteEvent, e(outside))
	h.refuse("target event not found or not yours to delete", "alice", nostr.KindDeleteEvent, nostrtest.Tag("e", h.state("hall", nostr.KindGroupMetadata).ID.String()))
	h.must("bob", nostr.KindDeleteEvent, e(own))
	h.must("alice", nostr.KindDeleteEvent, e(others))
	require.Zero(t, h.count(`SELECT count(*) FROM ingest.events WHERE kind = 9`))
	require.Equal(t, policy.Deleted, h.verdict(own))
	require.Equal(t, policy.BannedEvent, h.verdict(others))
	h.refuse("target event not found or not yours to delete", "alice", nostr.KindDeleteEvent, e(own))
}

// What was written for another place is kept out of a channel that asks for it (NIP-29).
func TestPreviousEvents(t *testing.T) {
	h := newHall(t)
	message := func(who string, refs ...string) policy.Verdict {
		h.serial++
		opts := []nostrtest.Option{nostrtest.Kind(9), nostrtest.Channel("hall"), nostrtest.Tag("serial", strconv.Itoa(h.serial))}
		if refs != nil {
			opts = append(opts, nostrtest.Tag(append([]string{"previous"}, refs...)...))
		}
		return h.verdict(h.candidate(who, opts...))
	}
	require.True(t, message("bob").Accepted())
	require.True(t, message("bob", "00000000").Accepted(), "nobody asks for references yet")
	h.must("alice", nostr.KindEditMetadata, nostrtest.Tag("previous_required", "true"))
	meta := h.state("hall", nostr.KindGroupMetadata)
	require.Equal(t, 1, meta.Tags.Count("previous_required"))
	outside := h.candidate("bob", nostrtest.Content("outside"))
	h.accept(outside)
	const want = "messages here must refer to earlier events of the channel, and to no others (previous tag)"
	first, members := meta.ID.String()[:8], h.state("hall", nostr.KindGroupMembers).ID.String()[:8]
	require.True(t, message("bob", first).Accepted())
	require.True(t, message("bob", first, members).Accepted())
	for _, refs := range [][]string{nil, {}, {"00000000"}, {first, "00000000"}, {first[:7]}, {"xxxxxxxx"}, {outside.Event.ID.String()[:8]}} {
		require.Equal(t, want, message("bob", refs...).Message, refs)
	}
	h.must("bob", nostr.KindJoinRequest) // no message
}

// Whoever leaves the community leaves its channels, and they do not lose their last owner with it.
func TestLeavingTheCommunityLeavesItsChannels(t *testing.T) {
	h := newHall(t)
	h.must("alice", nostr.KindPutUser, p("bob"))
	h.must("alice", nostr.KindPutUser, p("carol"), nostrtest.Tag("role", "admin"))
	h.must("alice", nostr.KindPutUser, p("dave"), nostrtest.Tag("role", "bot"))
	before := h.channelVersion()
	_, err := h.RemoveMember(t.Context(), h.community, nostrtest.PubKey("alice"))
	require.NoError(t, err)
	require.Equal(t, holding("bob", "member", "carol", "owner", "dave", "bot"), h.members())
	require.Equal(t, before+1, h.channelVersion())
	h.requireSnapshots("hall")
	for _, name := range []string{"carol", "bob"} {
		_, err := h.RemoveMember(t.Context(), h.community, nostrtest.PubKey(name))
		require.NoError(t, err)
	}
	require.Equal(t, holding("dave", "bot", "owner", "owner"), h.members(), "a bot inherits nothing: the owner of the community does")
	h.requireSnapshots("hall")

	for i := range maxLeft + 2 {
		v, _ := h.order(h.command(h.community, "erin", nostr.KindCreateGroup, nostrtest.Channel("room-"+string(rune('a'+i)))))
		require.Equal(t, policy.Verdict{}, v)
	}
	_, err = h.RemoveMember(t.Context(), h.community, nostrtest.PubKey("erin"))
	require.NoError(t, err)
	require.Equal(t, 2, h.putOff())
	h.passDelay()
	n, err := h.SignMembers(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	for i := range maxLeft + 2 {
		h.requireSnapshots("room-" + string(rune('a'+i)))
	}
}

// A relay that gets its key later signs what there is.
func TestChannelsWithoutAKey(t *testing.T) {
	h := &hall{fixture: newFixture(t)}
	h.must("alice", nostr.KindCreateGroup)
	h.must("bob", nostr.KindJoinRequest)
	require.Zero(t, h.count(`SELECT count(*) FROM ingest.events WHERE kind NOT IN (9007, 9021)`))
	n, err := h.SignChannels(t.Context(), 10)
	require.NoError(t, err)
	require.Zero(t, n)
	h.withKey()
	for want := range 2 {
		n, err = h.SignChannels(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 1-want, n)
	}
	h.requireSnapshots("hall")
}

func TestQuietChannelsAreArchived(t *testing.T) {
	h := newHall(t, nostrtest.Tag("ttl", "600"))
	sweep := func(after time.Duration) {
		_, err := h.ArchiveQuiet(t.Context(), time.Now().Add(after), 10)
		require.NoError(t, err)
	}
	archived := func() int { return h.count(`SELECT count(*) FROM ingest.channels WHERE archived_at IS NOT NULL`) }
	sweep(5 * time.Minute)
	require.Zero(t, archived())
	h.accept(h.candidate("bob", nostrtest.Kind(9), nostrtest.Channel("hall"), nostrtest.CreatedAt(time.Now().Add(8*time.Minute).Unix())))
	sweep(11 * time.Minute)
	require.Zero(t, archived(), "somebody wrote meanwhile")
	before := h.channelVersion()
	sweep(19 * time.Minute)
	sweep(19 * time.Minute)
	require.Equal(t, 1, archived())
	require.Equal(t, before+1, h.channelVersion())
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.events WHERE kind = 40099 AND raw LIKE '%channel_auto_archived%'::bytea`))
	h.requireSnapshots("hall")
	h.must("alice", nostr.KindEditMetadata, nostrtest.Tag("archived", "false"))
	sweep(9 * time.Minute)
	require.Zero(t, archived(), "it lives as long as at first")
}

// Lists name as many as fit; who decides is among them.
func TestLongListsAreCut(t *testing.T) {
	h := newHall(t)
	_, err := h.admin.Exec(t.Context(), `INSERT INTO ingest.channel_members (community_id, channel_id, pubkey, role)
SELECT c.community_id, c.id, sha256(n::text::bytea), CASE WHEN n <= 300 THEN 'admin' ELSE 'member' END
FROM ingest.channels c, generate_series(1, $1) AS n`, policy.MaxChannelMembers-2)
	require.NoError(t, err)
	h.must("bob", nostr.KindJoinRequest)
	h.passDelay()
	_, err = h.SignMembers(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, maxChannelListed, h.state("hall", nostr.KindGroupMembers).Tags.Count("p"))
	require.Equal(t, maxAdminsListed, h.state("hall", nostr.KindGroupAdmins).Tags.Count("p"))
	h.refuse("the channel has as many members as it may have", "carol", nostr.KindJoinRequest)
	h.refuse("the channel has as many members as it may have", "bob", nostr.KindPutUser, p("carol"))
	h.must("alice", nostr.KindEditMetadata, nostrtest.Tag("archived", "true"), nostrtest.Tag("about", strings.Repeat("x", 4096)))
	row := h.must("alice", nostr.KindEditMetadata, nostrtest.Tag("archived", "false"))
	require.Len(t, told(t, row, nostr.KindMemberAdded), maxNotified)

	escaped := func(n int) string { return strings.Repeat("\x01", n) }
	_, err = h.admin.Exec(t.Context(), `UPDATE ingest.channels SET snapshot_due = true,
name = $1, about = $2, topic = $2, purpose = $2, picture = $3, banner = $3`, escaped(256), escaped(4096), escaped(2048))
	require.NoError(t, err)
	n, err := h.SignChannels(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, maxChannelListed, h.state("hall", nostr.KindGroupMembers).Tags.Count("p"))
}
