package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

const (
	// By channel_members_pkey: those who decide first, then by when they came.
	sqlChannelRoster = `
SELECT pubkey, role FROM ingest.channel_members WHERE community_id = $1 AND channel_id = $2
ORDER BY CASE role WHEN 'owner' THEN 0 WHEN 'admin' THEN 1 ELSE 2 END, added_at, pubkey
LIMIT $3`

	// By channels_pkey.
	sqlSnapshotDue = `UPDATE ingest.channels SET snapshot_due = true WHERE community_id = $1 AND id = $2 AND NOT snapshot_due`

	// By channels_pkey: what was signed is due no more. $3 is all of it, $4 the list of members.
	sqlSnapshotSigned = `
UPDATE ingest.channels SET snapshot_due = snapshot_due AND NOT $3, members_due_at = CASE WHEN NOT $4 THEN members_due_at END
WHERE community_id = $1 AND id = $2 AND (snapshot_due AND $3 OR members_due_at IS NOT NULL AND $4)`

	// By channels_pkey: the first change sets the time, the next ones are signed with it.
	sqlMembersLater = `
UPDATE ingest.channels SET members_due_at = now() + make_interval(secs => $3)
WHERE community_id = $1 AND id = $2 AND members_due_at IS NULL`
)

// How many members the relay names because of one change. They fit into policy.FollowUpBytes together with a description
// of which every byte is escaped: a member of a list takes at most 88 bytes, a notice at most 512. The lists need not be
// complete (NIP-29).
const (
	maxChannelListed = 1500
	maxAdminsListed  = 200
	maxNotified      = 128
)

// snapshot says which parts of a channel's state are signed anew.
type snapshot uint8

const (
	metadata   snapshot = 1 << iota // kind 39000
	members                         // kinds 39001 and 39002
	everything = metadata | members
)

// channelRoles are what kind 39003 says of each role.
var channelRoles = []struct {
	role        policy.ChannelRole
	description string
}{
	{policy.ChannelOwner, "Runs the channel, names its owners and may delete it."},
	{policy.ChannelAdmin, "Changes the channel, its members and their roles, and removes messages."},
	{policy.ChannelMember, "Reads and writes."},
	{policy.ChannelGuest, "Reads and writes, and is marked as a guest."},
	{policy.ChannelBot, "Reads and writes, and is marked as a bot."},
}

// snapshot has the relay sign the channel's state as it is now, and the members later if they are many. Without a key it is
// remembered that this is due.
func (x *change) snapshot(ctx context.Context, g *group, parts snapshot) error {
	if x.key == nil {
		return x.exec(ctx, "remember snapshot of channel", sqlSnapshotDue, x.community, g.id)
	}
	if parts&members != 0 && g.Members > policy.ShortRoster {
		if err := x.exec(ctx, "postpone members of channel", sqlMembersLater, x.community, g.id, rosterDelay.Seconds()); err != nil {
			return err
		}
		parts &^= members
	}
	return x.snapshotNow(ctx, g, parts)
}

// snapshotNow is snapshot for any number of members.
func (x *change) snapshotNow(ctx context.Context, g *group, parts snapshot) error {
	if parts == 0 {
		return nil
	}
	if err := x.exec(ctx, "remember snapshot of channel", sqlSnapshotSigned, x.community, g.id,
		parts == everything, parts&members != 0); err != nil {
		return err
	}
	if parts&members == 0 && g.ChannelSpec.Type != policy.Direct {
		x.draftMetadata(g, nil)
		return nil
	}
	list, err := x.channelRoster(ctx, g, x.listed(maxChannelListed))
	if err != nil {
		return err
	}
	if parts&metadata != 0 {
		x.draftMetadata(g, list)
	}
	if parts&members != 0 {
		x.draftMembers(g, list)
	}
	return nil
}

// listed is how many members a list may name whose limit is most: as many as fit into a message that the bus takes.
func (t *transaction) listed(most int) int {
	if t.most == nil {
		return most
	}
	return min(most, max(t.most()/2/memberBytes, 1))
}

// channelMember is a member as a list names it.
type channelMember struct {
	key  nostr.PubKey
	role policy.ChannelRole
}

func (x *change) channelRoster(ctx context.Context, g *group, limit int) ([]channelMember, error) {
	rows, err := x.conn.Query(ctx, sqlChannelRoster, x.community, g.id, limit)
	if err != nil {
		return nil, fmt.Errorf("read members of channel: %w", err)
	}
	var list []channelMember
	var key []byte
	var role policy.ChannelRole
	if _, err := pgx.ForEachRow(rows, []any{&key, &role}, func() error {
		list = append(list, channelMember{nostr.PubKey(key), role})
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read members of channel: %w", err)
	}
	return list, nil
}

// draftMetadata has the relay sign kind 39000. The participants are those of a conversation, which has no name.
func (x *change) draftMetadata(g *group, participants []channelMember) {
	d := draft{kind: nostr.KindGroupMetadata, channel: g.key.H, tags: nostr.Tags{{"d", g.key.H}, {"name", g.Name}}}
	optional := func(name, value string) {
		if value != "" {
			d.tags = append(d.tags, nostr.Tag{name, value})
		}
	}
	optional("about", g.About)
	optional("picture", g.Picture)
	optional("banner", g.Banner)
	if g.ChannelSpec.Private {
		d.tags = append(d.tags, nostr.Tag{"private"}, nostr.Tag{"restricted"}, nostr.Tag{"closed"})
	} else {
		d.tags = append(d.tags, nostr.Tag{"public"})
	}
	if g.ChannelSpec.Type == policy.Direct {
		d.tags = append(d.tags, nostr.Tag{"hidden"})
		for _, m := range participants {
			d.tags = append(d.tags, nostr.Tag{"p", m.key.String()})
		}
	}
	d.tags = append(d.tags, nostr.Tag{"t", string(g.ChannelSpec.Type)})
	optional("topic", g.Topic)
	optional("purpose", g.Purpose)
	if g.Archived {
		d.tags = append(d.tags, nostr.Tag{"archived", "true"})
	}
	if g.TTL > 0 {
		d.tags = append(d.tags, nostr.Tag{"ttl", strconv.Itoa(int(g.TTL))})
	}
	if g.deadline != nil && !g.Archived {
		d.tags = append(d.tags, nostr.Tag{"ttl_deadline", g.deadline.UTC().Format(time.RFC3339)})
	}
	if g.PreviousRequired {
		d.tags = append(d.tags, nostr.Tag{"previous_required"})
	}
	x.draft(d)
}

// draftMembers has the relay sign kinds 39001 and 39002, and once what the roles mean (kind 39003).
func (x *change) draftMembers(g *group, list []channelMember) {
	admins := draft{kind: nostr.KindGroupAdmins, channel: g.key.H, tags: nostr.Tags{{"d", g.key.H}}}
	all := draft{kind: nostr.KindGroupMembers, channel: g.key.H, tags: nostr.Tags{{"d", g.key.H}}}
	for i, m := range list {
		if m.role.Manages() && i < maxAdminsListed {
			admins.tags = append(admins.tags, nostr.Tag{"p", m.key.String(), string(m.role)})
		}
		all.tags = append(all.tags, nostr.Tag{"p", m.key.String(), "", string(m.role)})
	}
	x.draft(admins)
	x.draft(all)
	roles := draft{kind: nostr.KindGroupRoles, channel: g.key.H, once: true, tags: nostr.Tags{{"d", g.key.H}}}
	for _, r := range channelRoles {
		roles.tags = append(roles.tags, nostr.Tag{"role", string(r.role), r.description})
	}
	x.draft(roles)
}

// notice is the content of a system message (kind 40099).
type notice struct {
	Type       string  `json:"type"`
	Actor      string  `json:"actor,omitempty"`
	Target     string  `json:"target,omitempty"`
	Topic      *string `json:"topic,omitempty"`
	Purpose    *string `json:"purpose,omitempty"`
	Visibility string  `json:"visibility,omitempty"`
	// Participants are those of a new conversation.
	Participants []string `json:"participants,omitempty"`
	// TTLSeconds is 0 for none.
	TTLSeconds *int32 `json:"ttl_seconds,omitempty"`
}

// say has the relay tell the channel what happened.
func (x *change) say(g *group, n notice) {
	x.draft(draft{
		kind: nostr.KindSystemMessage, channel: g.key.H, tags: nostr.Tags{{"h", g.key.H}}, content: encode(n),
	})
}

// sayEdited tells the channel what an edit has changed.
func (x *change) sayEdited(before, after *group, by nostr.PubKey) {
	actor := by.String()
	if before.Topic != after.Topic {
		x.say(after, notice{Type: "topic_changed", Actor: actor, Topic: &after.Topic})
	}
	if before.Purpose != after.Purpose {
		x.say(after, notice{Type: "purpose_changed", Actor: actor, Purpose: &after.Purpose})
	}
	if before.ChannelSpec.Private != after.ChannelSpec.Private {
		n := notice{Type: "visibility_changed", Actor: actor, Visibility: policy.VisibilityOpen}
		if after.ChannelSpec.Private {
			n.Visibility = policy.VisibilityPrivate
		}
		x.say(after, n)
	}
	if before.TTL != after.TTL {
		x.say(after, notice{Type: "ttl_changed", Actor: actor, TTLSeconds: &after.TTL})
	}
	switch {
	case !before.Archived && after.Archived:
		x.say(after, notice{Type: "channel_archived", Actor: actor})
	case before.Archived && !after.Archived:
		x.say(after, notice{Type: "channel_unarchived", Actor: actor})
	}
}

// notify has the relay tell a key that it is a member of the channel now, or not any more (kinds 44100 and 44101).
func (x *change) notify(g *group, kind nostr.Kind, actor, key nostr.PubKey) {
	content := struct {
		Type    string `json:"type"`
		Channel string `json:"channel_id"`
		Actor   string `json:"actor"`
	}{"member_added", g.key.H, actor.String()}
	if kind == nostr.KindMemberRemoved {
		content.Type = "member_removed"
	}
	x.draft(draft{kind: kind, tags: nostr.Tags{{"p", key.String()}, {"h", g.key.H}}, content: encode(content)})
}

// notifyAll tells members that the channel is there again, so that their clients subscribe to it.
func (x *change) notifyAll(ctx context.Context, g *group, actor nostr.PubKey) error {
	return x.notifyMembers(ctx, g, nostr.KindMemberAdded, actor)
}

// notifyRemoved tells members that the channel is gone.
func (x *change) notifyRemoved(ctx context.Context, g *group, actor nostr.PubKey) error {
	return x.notifyMembers(ctx, g, nostr.KindMemberRemoved, actor)
}

func (x *change) notifyMembers(ctx context.Context, g *group, kind nostr.Kind, actor nostr.PubKey) error {
	if x.key == nil {
		return nil
	}
	list, err := x.channelRoster(ctx, g, maxNotified)
	if err != nil {
		return err
	}
	for _, m := range list {
		x.notify(g, kind, actor, m.key)
	}
	return nil
}

// encode returns content as JSON. It holds nothing that cannot be encoded.
func encode(content any) string {
	text, _ := json.Marshal(content)
	return string(text)
}
