package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

const (
	// By event_ids_pkey, events_time, agents_pkey and vanished_pkey: an event of a channel that is to be seen, and whether an agent
	// of a key has written it.
	sqlChannelEvent = `
SELECT e.raw, EXISTS (SELECT FROM ingest.agents a WHERE a.community_id = $1 AND a.pubkey = e.pubkey AND a.owner = $4) FROM ingest.event_ids i
JOIN ingest.events e ON e.community_id = i.community_id AND e.created_at = i.created_at AND e.id = i.id
WHERE i.community_id = $1 AND i.id = $2 AND e.channel_id = $3
    AND (e.expires_at IS NULL OR e.expires_at > extract(epoch FROM now()))
    AND NOT EXISTS (SELECT FROM ingest.vanished v
        WHERE v.community_id = e.community_id AND v.pubkey = e.pubkey AND v.until >= e.created_at OFFSET 0)`

	// Conflicts on banned_events_pkey: a ban stays as it is.
	sqlBanChannelEvent = `
INSERT INTO ingest.banned_events (community_id, id, reason, decided_by) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`
)

// deleteEvent removes an event of a channel. It does not come back: the deletion of its author, or of whose
// agent that is, binds the author, that of an admin everybody.
func (x *change) deleteEvent(ctx context.Context, e *entry, d *policy.DeleteEvent) (policy.Verdict, error) {
	actor := e.Event.PubKey
	g, err := x.group(ctx, e.Channel, actor, actor)
	if err != nil {
		return policy.Verdict{}, err
	}
	var found *policy.Found
	var target stored
	var raw []byte
	var owned bool
	switch err := x.conn.QueryRow(ctx, sqlChannelEvent, x.community, d.Target[:], g.id, actor[:]).Scan(&raw, &owned); {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return policy.Verdict{}, fmt.Errorf("look up event of channel: %w", err)
	default:
		ev, err := wire.DecodeEvent(raw, wire.Limits{})
		if err != nil {
			return policy.Verdict{}, fmt.Errorf("decode stored event: %w", err)
		}
		found, target = &policy.Found{Author: ev.PubKey, Kind: ev.Kind, Owned: owned}, newStored(x.community, ev)
	}
	if v := d.Judge(g.Group, actor, found); !v.Accepted() {
		return v, nil
	}
	if err := x.leaveThreads(ctx, x.conn, []stored{target}, 1); err != nil {
		return policy.Verdict{}, err
	}
	b := &pgx.Batch{}
	queueErase(b, []stored{target}, true)
	if found.Author == actor || found.Owned {
		b.Queue(sqlInsertTombstones, []int64{x.community}, [][]byte{d.Target[:]}, [][]byte{found.Author[:]}, e.Event.ID[:])
	} else {
		b.Queue(sqlBanChannelEvent, x.community, d.Target[:], "deleted in channel "+e.Channel, actor[:])
	}
	if err := x.conn.SendBatch(ctx, b).Close(); err != nil {
		return policy.Verdict{}, fmt.Errorf("delete event of channel: %w", err)
	}
	return policy.Verdict{}, nil
}
