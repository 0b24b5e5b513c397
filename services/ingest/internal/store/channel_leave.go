package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements about keys that leave a community, and with it all of its channels, together with their agents. Whoever runs them holds the community
// exclusively.
const (
	// By channel_members_pubkey and channels_pkey: each channel that one of the keys was in gets a new version. Who is in a
	// conversation stays the same: whoever may not use the community does not read it.
	sqlLeaveChannels = `
WITH gone AS (
    DELETE FROM ingest.channel_members m
    USING ingest.channels c
    WHERE m.community_id = $1 AND m.pubkey = ANY ($2::bytea[]) AND c.community_id = $1 AND c.id = m.channel_id AND c.type <> 'dm'
    RETURNING m.channel_id, m.role
), left_channels AS (
    SELECT channel_id, bool_or(role = 'owner') AS owned FROM gone GROUP BY channel_id
), raised AS (
    UPDATE ingest.channels c SET acl_version = acl_version + 1, members_due_at = coalesce(members_due_at, now() + make_interval(secs => $3))
    FROM left_channels l WHERE c.community_id = $1 AND c.id = l.channel_id
    RETURNING c.id, c.h, l.owned
)
SELECT id, h, owned FROM raised ORDER BY id`

	// By channel_members_pkey: who has been an admin for longest, or a member if there is no admin, becomes the owner
	// of a channel without one.
	sqlInheritChannels = `
UPDATE ingest.channel_members m SET role = 'owner'
FROM unnest($2::bigint[]) AS q (channel_id)
CROSS JOIN LATERAL (
    SELECT heir.pubkey FROM ingest.channel_members heir
    WHERE heir.community_id = $1 AND heir.channel_id = q.channel_id AND heir.role IN ('admin', 'member')
        AND NOT EXISTS (SELECT FROM ingest.channel_members o
            WHERE o.community_id = $1 AND o.channel_id = q.channel_id AND o.role = 'owner')
    ORDER BY heir.role, heir.added_at, heir.pubkey LIMIT 1
) AS next
WHERE m.community_id = $1 AND m.channel_id = q.channel_id AND m.pubkey = next.pubkey`

	// By community_members_pkey, channels_pkey and channel_members_pkey: channels that still have no owner, because guests and
	// bots inherit nothing, go to an owner of the community who stays; except private ones without members.
	sqlAdoptChannels = `
INSERT INTO ingest.channel_members (community_id, channel_id, pubkey, role)
SELECT $1, c.id, o.pubkey, 'owner'
FROM unnest($2::bigint[]) AS q (channel_id)
JOIN ingest.channels c ON c.community_id = $1 AND c.id = q.channel_id
CROSS JOIN LATERAL (
    SELECT pubkey FROM ingest.community_members
    WHERE community_id = $1 AND role = 'owner' AND pubkey <> ALL ($3::bytea[]) ORDER BY pubkey LIMIT 1) AS o
WHERE NOT EXISTS (
        SELECT FROM ingest.channel_members m WHERE m.community_id = $1 AND m.channel_id = c.id AND m.role = 'owner')
    AND (c.visibility = 'open'
        OR EXISTS (SELECT FROM ingest.channel_members m WHERE m.community_id = $1 AND m.channel_id = c.id))
ON CONFLICT (community_id, channel_id, pubkey) DO UPDATE SET role = excluded.role`

	// By channels_pkey and channel_members_pkey: those that nobody may read any more.
	sqlAbandonedChannels = `
SELECT c.id, c.h
FROM unnest($2::bigint[]) AS q (channel_id)
JOIN ingest.channels c ON c.community_id = $1 AND c.id = q.channel_id AND c.visibility = 'private'
WHERE NOT EXISTS (SELECT FROM ingest.channel_members m WHERE m.community_id = $1 AND m.channel_id = c.id)
ORDER BY c.id`
)

// maxLeft is of how many channels the lists are signed in the transaction in which a member leaves them all. Those of
// the rest follow in the background, as do those for which there is no room.
const maxLeft = 16

// leaveChannels removes keys from all channels but conversations, and reports whether they were in any. A channel that one
// of them was the last owner of goes to somebody who is left in it, or else to the community's owner. A private one without
// anybody is deleted:
// nobody could read it, or make another one under its id.
func (x *change) leaveChannels(ctx context.Context, keys []nostr.PubKey) (bool, error) {
	columns := make([][]byte, len(keys))
	for i, key := range keys {
		columns[i] = bytesOf(key)
	}
	rows, err := x.conn.Query(ctx, sqlLeaveChannels, x.community, columns, rosterDelay.Seconds())
	if err != nil {
		return false, fmt.Errorf("leave channels: %w", err)
	}
	var left, owned []int64
	var id int64
	var h string
	var owner bool
	tag, err := pgx.ForEachRow(rows, []any{&id, &h, &owner}, func() error {
		x.left, left = append(x.left, h), append(left, id)
		if owner {
			owned = append(owned, id)
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("leave channels: %w", err)
	}
	if len(owned) > 0 {
		if _, err := x.conn.Exec(ctx, sqlInheritChannels, x.community, owned); err != nil {
			return false, fmt.Errorf("inherit channels: %w", err)
		}
	}
	if len(left) > 0 {
		if _, err := x.conn.Exec(ctx, sqlAdoptChannels, x.community, left, columns); err != nil {
			return false, fmt.Errorf("adopt channels: %w", err)
		}
		if err := x.dropAbandoned(ctx, left); err != nil {
			return false, err
		}
	}
	return tag.RowsAffected() > 0, nil
}

// dropAbandoned deletes those of the channels that are private and without members. Nothing is said of it: nobody is left
// to hear it.
func (x *change) dropAbandoned(ctx context.Context, channels []int64) error {
	type abandoned struct {
		ID int64
		H  string
	}
	rows, err := x.conn.Query(ctx, sqlAbandonedChannels, x.community, channels)
	if err != nil {
		return fmt.Errorf("look for abandoned channels: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[abandoned])
	if err != nil {
		return fmt.Errorf("look for abandoned channels: %w", err)
	}
	for _, c := range list {
		if err := x.dropChannel(ctx, c.ID); err != nil {
			return err
		}
	}
	return nil
}

// draftLeft has the relay sign the lists of members of channels that a member has left, the short ones, as long as there is
// room.
func (x *change) draftLeft(ctx context.Context, room int) error {
	left := x.left[:min(len(x.left), maxLeft)]
	x.left = nil
	if x.key == nil {
		return nil
	}
	room /= 2 // estimates are rough
	for _, d := range x.drafts {
		room -= d.size()
	}
	for _, h := range left {
		g, err := x.group(ctx, h, nostr.PubKey{}, nostr.PubKey{})
		if err != nil {
			return err
		}
		if !g.Exists || g.Members > policy.ShortRoster {
			continue // it was deleted, or its time will come
		}
		if room -= g.Members*memberBytes + 3*eventBytes; room < 0 {
			return nil
		}
		if err := x.snapshot(ctx, g, members); err != nil {
			return err
		}
	}
	return nil
}

// Estimates of JSON in bytes: a member of two lists, and an event without its tags and content.
const (
	memberBytes = 2 * 96
	eventBytes  = 512
)

// size estimates the bytes of the event.
func (d draft) size() int {
	n := eventBytes + len(d.content)
	for _, t := range d.tags {
		n += 2
		for _, v := range t {
			n += len(v) + 3
		}
	}
	return n
}
