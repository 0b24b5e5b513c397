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

// Statements of the upkeep of channels. What they find is looked at again under the channel's lock, so that of several
// replicas one acts.
const (
	// By channels_snapshot_due.
	sqlChannelsDue = `SELECT community_id, h FROM ingest.channels WHERE snapshot_due ORDER BY community_id, id LIMIT $1`

	// By channels_ttl_deadline.
	sqlChannelsQuiet = `
SELECT community_id, h FROM ingest.channels
WHERE archived_at IS NULL AND ttl_deadline <= $1 ORDER BY ttl_deadline LIMIT $2`

	// By channels_pkey.
	sqlIsSnapshotDue = `SELECT snapshot_due FROM ingest.channels WHERE community_id = $1 AND id = $2`

	// By events_channel: the newest event that somebody wrote. What the relay says is at most a few events in a row.
	sqlLastWritten = `
SELECT created_at FROM ingest.events
WHERE community_id = $1 AND channel_id = $2 AND kind <> 40099 AND kind NOT BETWEEN 39000 AND 39009
ORDER BY created_at DESC LIMIT 1`

	// By channels_pkey.
	sqlPostponeChannel = `UPDATE ingest.channels SET ttl_deadline = $3 WHERE community_id = $1 AND id = $2`

	// By channels_pkey.
	sqlArchiveChannel = `UPDATE ingest.channels SET archived_at = now() WHERE community_id = $1 AND id = $2`

	// By deleted_channels_time.
	sqlDeletedChannels = `
SELECT community_id, channel_id FROM ingest.deleted_channels WHERE deleted_at < $1 ORDER BY deleted_at LIMIT 1`

	// By events_channel.
	sqlChannelEvents = `
SELECT 1::bigint, community_id, raw FROM ingest.events WHERE community_id = $1 AND channel_id = $2 LIMIT $3`

	// By deleted_channels_pkey.
	sqlForgetDeleted = `DELETE FROM ingest.deleted_channels WHERE community_id = $1 AND channel_id = $2`
)

// changeChannel runs fn while no batch of the channel is between its reading and its commit. A channel that does not
// exist any more is left alone, and so is one whose community is being deleted.
func (s *Store) changeChannel(ctx context.Context, key policy.ChannelKey, fn func(x *change, g *group) error) error {
	locks := lockSet{}
	locks.shared(communityLock(key.Community))
	locks.exclusive(channelLock(key))
	return s.transact(ctx, locks, func(x *change) error {
		switch err := x.enter(ctx, key.Community); {
		case errors.Is(err, ErrNoCommunity):
			return nil
		case err != nil:
			return err
		}
		g, err := x.group(ctx, key.H, nostr.PubKey{}, nostr.PubKey{})
		if err != nil || !g.Exists {
			return err
		}
		return fn(x, g)
	})
}

// SignChannels has the relay sign the state of up to limit channels of which it has not signed any: those from before it
// had a key, or before this release. It returns how many it found.
func (s *Store) SignChannels(ctx context.Context, limit int) (int, error) {
	return s.signDue(ctx, sqlChannelsDue, sqlIsSnapshotDue, everything, limit)
}

// SignMembers has the relay sign up to limit lists of members of channels whose time has come, and returns how many it
// found.
func (s *Store) SignMembers(ctx context.Context, limit int) (int, error) {
	return s.signDue(ctx, sqlChannelMembersDue, sqlAreChannelMembersDue, members, limit)
}

// signDue signs parts of channels that the statement find finds. Another replica may have been sooner, so the statement
// isDue looks again once the channel is held.
func (s *Store) signDue(ctx context.Context, find, isDue string, parts snapshot, limit int) (int, error) {
	if s.key == nil {
		return 0, nil
	}
	keys, err := s.channels(ctx, find, limit)
	for _, key := range keys {
		err = errors.Join(err, s.changeChannel(ctx, key, func(x *change, g *group) error {
			var due bool
			if err := x.conn.QueryRow(ctx, isDue, x.community, g.id).Scan(&due); err != nil || !due {
				return err
			}
			return x.snapshotNow(ctx, g, parts)
		}))
	}
	if err != nil {
		return 0, fmt.Errorf("sign channels: %w", err)
	}
	return len(keys), nil
}

// ArchiveQuiet archives up to limit channels in which nobody has written for as long as they live by now, and
// returns how many it looked at.
func (s *Store) ArchiveQuiet(ctx context.Context, now time.Time, limit int) (int, error) {
	keys, err := s.channels(ctx, sqlChannelsQuiet, now, limit)
	for _, key := range keys {
		err = errors.Join(err, s.changeChannel(ctx, key, func(x *change, g *group) error { return x.archiveQuiet(ctx, g, now) }))
	}
	if err != nil {
		return 0, fmt.Errorf("archive channels: %w", err)
	}
	return len(keys), nil
}

// archiveQuiet archives a channel whose deadline has passed, unless somebody has written since it was set: that is
// looked up now, so that a message costs no write to its channel.
func (x *change) archiveQuiet(ctx context.Context, g *group, now time.Time) error {
	if g.Archived || g.deadline == nil || g.deadline.After(now) {
		return nil
	}
	var last int64
	if err := x.conn.QueryRow(ctx, sqlLastWritten, x.community, g.id).Scan(&last); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("look for the last message of a channel: %w", err)
	}
	if next := time.Unix(min(last, now.Unix()), 0).Add(time.Duration(g.TTL) * time.Second); next.After(now) {
		g.deadline = &next
		if _, err := x.conn.Exec(ctx, sqlPostponeChannel, x.community, g.id, next); err != nil {
			return fmt.Errorf("postpone end of channel: %w", err)
		}
		return x.snapshot(ctx, g, metadata)
	}
	if _, err := x.conn.Exec(ctx, sqlArchiveChannel, x.community, g.id); err != nil {
		return fmt.Errorf("archive channel: %w", err)
	}
	g.Archived = true
	if err := x.raiseChannel(ctx, g); err != nil {
		return err
	}
	x.say(g, notice{Type: "channel_auto_archived"})
	return x.snapshot(ctx, g, metadata)
}

// channels collects rows of (community, h).
func (s *Store) channels(ctx context.Context, query string, args ...any) ([]policy.ChannelKey, error) {
	rows, err := s.pool.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[policy.ChannelKey])
}

// SweepDeleted removes up to limit events of a channel that was deleted before a moment, and returns how many; 0 when
// there is no such channel any more.
func (s *Store) SweepDeleted(ctx context.Context, before time.Time, limit int) (int, error) {
	removed := 0
	var community, channel int64
	err := s.pool.QueryRow(ctx, sqlDeletedChannels, before).Scan(&community, &channel)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err == nil {
		locks := lockSet{}
		locks.exclusive(communityLock(community)) // as SweepExpired
		err = s.inTx(ctx, locks, func(conn *pgx.Conn) error {
			rows, err := conn.Query(ctx, sqlChannelEvents, community, channel, limit)
			if err != nil {
				return err
			}
			var list []stored
			if err := collectStored(func(_ int, st stored) { list = append(list, st) })(rows); err != nil {
				return err
			}
			removed = len(list)
			b := &pgx.Batch{}
			queueErase(b, list, true)
			if removed < limit {
				b.Queue(sqlForgetDeleted, community, channel)
			}
			return conn.SendBatch(ctx, b).Close()
		})
	}
	if err != nil {
		return 0, fmt.Errorf("remove events of deleted channels: %w", err)
	}
	return max(removed, 1), nil // a channel that is done: there may be another one
}
