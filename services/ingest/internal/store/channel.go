package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements of channels. Whoever runs them holds the channel, or its community, exclusively.
const (
	// By channels_h_key.
	sqlChannel = `
SELECT id, acl_version, name, about, picture, banner, topic, purpose, type, visibility = 'private', coalesce(ttl_seconds, 0),
    previous_required, archived_at IS NOT NULL, ttl_deadline
FROM ingest.channels WHERE community_id = $1 AND h = $2`

	// By channel_members_pkey, agents_pkey and agents_owner: the roles of two keys, how many owners and members there are,
	// and whether the first key owns an agent that is an owner, or the second.
	sqlStanding = `
SELECT coalesce(max(role) FILTER (WHERE pubkey = $3), ''), coalesce(max(role) FILTER (WHERE pubkey = $4), ''),
    count(*) FILTER (WHERE role = 'owner'), count(*),
    EXISTS (SELECT FROM ingest.agents a JOIN ingest.channel_members o
            ON o.community_id = a.community_id AND o.channel_id = $2 AND o.pubkey = a.pubkey AND o.role = 'owner'
        WHERE a.owner = $3 AND a.community_id = $1),
    EXISTS (SELECT FROM ingest.agents a WHERE a.community_id = $1 AND a.pubkey = $4 AND a.owner = $3)
FROM ingest.channel_members WHERE community_id = $1 AND channel_id = $2`

	// Conflicts on channels_h_key, which the exclusive lock rules out. The owner is the first member.
	sqlCreateChannel = `
WITH made AS (
    INSERT INTO ingest.channels (community_id, h, name, about, picture, banner, topic, purpose, type, visibility,
        ttl_seconds, ttl_deadline, previous_required, snapshot_due, created_by)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, CASE WHEN $10 THEN 'private' ELSE 'open' END,
        nullif($11, 0), now() + make_interval(secs => nullif($11, 0)), $12, $13, $14)
    RETURNING id, acl_version, ttl_deadline
), owner AS (
    INSERT INTO ingest.channel_members (community_id, channel_id, pubkey, role) SELECT $1, made.id, $14, 'owner' FROM made
)
SELECT id, acl_version, ttl_deadline FROM made`

	// By channels_pkey. Somebody wants the channel as it is now: its end is as far away as it was at first.
	sqlUpdateChannel = `
UPDATE ingest.channels SET name = $3, about = $4, picture = $5, banner = $6, topic = $7, purpose = $8,
    visibility = CASE WHEN $9 THEN 'private' ELSE 'open' END,
    ttl_seconds = nullif($10, 0), ttl_deadline = now() + make_interval(secs => nullif($10, 0)), previous_required = $11,
    archived_at = CASE WHEN $12 THEN coalesce(archived_at, now()) END
WHERE community_id = $1 AND id = $2
RETURNING ttl_deadline`

	// By channels_pkey.
	sqlRaiseChannel = `
UPDATE ingest.channels SET acl_version = acl_version + 1 WHERE community_id = $1 AND id = $2 RETURNING acl_version`

	// By channels_pkey.
	sqlDeleteChannel = `
WITH gone AS (
    DELETE FROM ingest.channels WHERE community_id = $1 AND id = $2
)
INSERT INTO ingest.deleted_channels (community_id, channel_id) VALUES ($1, $2)`
)

// group is a channel that a change holds, with who stands where in it.
type group struct {
	policy.Group
	policy.ChannelSpec
	key      policy.ChannelKey
	id       int64
	version  uint64
	deadline *time.Time // when the channel is archived if nobody writes, nil for never
}

// group reads a channel, and where two keys stand in it: who acts, and whom it is about.
func (x *change) group(ctx context.Context, h string, actor, target nostr.PubKey) (*group, error) {
	g := &group{key: policy.ChannelKey{Community: x.community, H: h}}
	var version int64
	err := x.conn.QueryRow(ctx, sqlChannel, x.community, h).Scan(&g.id, &version, &g.Name, &g.About, &g.Picture, &g.Banner,
		&g.Topic, &g.Purpose, &g.ChannelSpec.Type, &g.ChannelSpec.Private, &g.TTL, &g.PreviousRequired, &g.Archived, &g.deadline)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return g, nil
	case err != nil:
		return nil, fmt.Errorf("read channel: %w", err)
	}
	g.version, g.Exists = uint64(version), true
	g.Group.Type, g.Group.Private = g.ChannelSpec.Type, g.ChannelSpec.Private
	err = x.conn.QueryRow(ctx, sqlStanding, x.community, g.id, actor[:], target[:]).
		Scan(&g.Actor, &g.Target, &g.Owners, &g.Members, &g.OwnsOwner, &g.OwnsTarget)
	if err != nil {
		return nil, fmt.Errorf("read who stands where in a channel: %w", err)
	}
	x.know(g)
	return g, nil
}

// know makes the channel's headers say what it is now.
func (x *change) know(g *group) {
	x.state.Channels[g.key] = policy.Channel{
		ID: g.id, Private: g.ChannelSpec.Private, Archived: g.Archived, ACLVersion: g.version,
	}
}

// raiseChannel gives the channel a new access version, so that what is committed from now on is for those only who
// may read by it.
func (x *change) raiseChannel(ctx context.Context, g *group) error {
	var version int64
	if err := x.conn.QueryRow(ctx, sqlRaiseChannel, x.community, g.id).Scan(&version); err != nil {
		return fmt.Errorf("raise access version of channel: %w", err)
	}
	g.version = uint64(version)
	x.know(g)
	return nil
}

func (x *change) createChannel(ctx context.Context, e *entry, c *policy.CreateChannel) (policy.Verdict, error) {
	g, err := x.group(ctx, e.Channel, e.Event.PubKey, e.Event.PubKey)
	if err != nil {
		return policy.Verdict{}, err
	}
	if v := c.Judge(g.Group); !v.Accepted() {
		return v, nil
	}
	if v, err := x.mayMake(ctx, e.Event.PubKey, x.counts.channels, channelTypes, "channels"); err != nil || !v.Accepted() {
		return v, err
	}
	var version int64
	err = x.conn.QueryRow(ctx, sqlCreateChannel, x.community, e.Channel, c.Name, c.About, c.Picture, c.Banner, c.Topic, c.Purpose,
		c.Type, c.Private, c.TTL, c.PreviousRequired, x.key == nil, e.Event.PubKey[:]).Scan(&g.id, &version, &g.deadline)
	if err != nil {
		return policy.Verdict{}, fmt.Errorf("create channel: %w", err)
	}
	g.version, g.Exists, g.ChannelSpec = uint64(version), true, c.ChannelSpec
	x.know(g)
	x.say(g, notice{Type: "member_joined", Actor: e.Event.PubKey.String(), Target: e.Event.PubKey.String()})
	x.notify(g, nostr.KindMemberAdded, e.Event.PubKey, e.Event.PubKey)
	return c.Answer(g.key.H), x.snapshot(ctx, g, everything)
}

func (x *change) editChannel(ctx context.Context, e *entry, edit *policy.EditChannel) (policy.Verdict, error) {
	g, err := x.group(ctx, e.Channel, e.Event.PubKey, e.Event.PubKey)
	if err != nil {
		return policy.Verdict{}, err
	}
	if v := edit.Judge(g.Group); !v.Accepted() {
		return v, nil
	}
	before := *g
	g.ChannelSpec = edit.Apply(g.ChannelSpec)
	if edit.Archived != nil {
		g.Archived = *edit.Archived
	}
	if err := x.writeChannel(ctx, g); err != nil {
		return policy.Verdict{}, err
	}
	if g.ChannelSpec.Private != before.ChannelSpec.Private || g.Archived != before.Archived {
		if err := x.raiseChannel(ctx, g); err != nil {
			return policy.Verdict{}, err
		}
	}
	actor := e.Event.PubKey
	x.sayEdited(&before, g, actor)
	if before.Archived && !g.Archived {
		if err := x.notifyAll(ctx, g, actor); err != nil {
			return policy.Verdict{}, err
		}
	}
	return policy.Verdict{}, x.snapshot(ctx, g, metadata)
}

func (x *change) writeChannel(ctx context.Context, g *group) error {
	err := x.conn.QueryRow(ctx, sqlUpdateChannel, x.community, g.id, g.Name, g.About, g.Picture, g.Banner, g.Topic, g.Purpose,
		g.ChannelSpec.Private, g.TTL, g.PreviousRequired, g.Archived).Scan(&g.deadline)
	if err != nil {
		return fmt.Errorf("edit channel: %w", err)
	}
	return nil
}

// deleteChannel removes the channel with its members. Its events can be read by nobody from then on, and go in the
// background.
func (x *change) deleteChannel(ctx context.Context, e *entry, d *policy.DeleteChannel) (policy.Verdict, error) {
	g, err := x.group(ctx, e.Channel, e.Event.PubKey, e.Event.PubKey)
	if err != nil {
		return policy.Verdict{}, err
	}
	if v := d.Judge(g.Group); !v.Accepted() {
		return v, nil
	}
	// What is delivered because of it must not be decided upon by what was known of the channel before.
	if err := x.raiseChannel(ctx, g); err != nil {
		return policy.Verdict{}, err
	}
	if err := x.notifyRemoved(ctx, g, e.Event.PubKey); err != nil {
		return policy.Verdict{}, err
	}
	return policy.Verdict{}, x.dropChannel(ctx, g.id)
}

// dropChannel removes a channel that must not be read any more.
func (x *change) dropChannel(ctx context.Context, id int64) error {
	return x.exec(ctx, "delete channel", sqlDeleteChannel, x.community, id)
}
