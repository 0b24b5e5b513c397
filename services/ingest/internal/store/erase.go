package store

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements that remove events with all that belongs to them. Rows that are gone already are no fault.
const (
	// By events_time.
	sqlEraseEvents = `
DELETE FROM ingest.events e
USING unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS q (community_id, created_at, id)
WHERE e.community_id = q.community_id AND e.created_at = q.created_at AND e.id = q.id`

	// By event_ids_pkey.
	sqlEraseIDs = `
DELETE FROM ingest.event_ids i
USING unnest($1::bigint[], $2::bytea[]) AS q (community_id, id)
WHERE i.community_id = q.community_id AND i.id = q.id`

	// By event_tags_value. The tags are computed from the event: an index by id, for this alone, would cost every
	// insertion.
	sqlEraseTags = `
DELETE FROM ingest.event_tags t
USING unnest($1::bigint[], $2::text[], $3::bytea[], $4::bigint[], $5::bytea[])
    AS q (community_id, name, value, created_at, id)
WHERE t.community_id = q.community_id AND t.name = q.name AND t.value = q.value
    AND t.created_at = q.created_at AND t.id = q.id`

	// By addresses_pkey. An address that has been taken over by another version stays.
	sqlEraseAddresses = `
DELETE FROM ingest.addresses a
USING unnest($1::bigint[], $2::integer[], $3::bytea[], $4::bytea[], $5::bytea[])
    AS q (community_id, kind, pubkey, d, id)
WHERE a.community_id = q.community_id AND a.kind = q.kind AND a.pubkey = q.pubkey AND a.d = q.d AND a.id = q.id`
)

// stored is an event as it was found in the database.
type stored struct {
	community int64
	event     *nostr.Event
}

// collectStored reads rows of (ordinal, community, raw).
func collectStored(found func(i int, st stored)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var n, community int64
		var raw []byte
		_, err := pgx.ForEachRow(rows, []any{&n, &community, &raw}, func() error {
			// Without limits: what was accepted once, under whatever limits, must stay removable.
			ev, err := wire.DecodeEvent(raw, wire.Limits{})
			if err != nil {
				return fmt.Errorf("decode stored event: %w", err)
			}
			found(int(n-1), stored{community, ev})
			return nil
		})
		return err
	}
}

// queueErase removes events. withAddresses is false when their addresses have been given to others.
func queueErase(b *pgx.Batch, list []stored, withAddresses bool) {
	if len(list) == 0 {
		return
	}
	communities, created, ids := make([]int64, len(list)), make([]int64, len(list)), make([][]byte, len(list))
	tags := newTagColumns(4 * len(list))
	a := newAddressColumns(0)
	var addressed [][]byte
	for i, st := range list {
		communities[i], created[i], ids[i] = st.community, st.event.CreatedAt, st.event.ID[:]
		tags.add(st.community, st.event)
		if _, ok := policy.CoordinateOf(st.event); ok {
			a.add(addressOf(st.community, st.event))
			addressed = append(addressed, st.event.ID[:])
		}
	}
	if withAddresses && len(addressed) > 0 {
		b.Queue(sqlEraseAddresses, a.communities, a.kinds, a.pubkeys, a.ds, addressed)
	}
	b.Queue(sqlEraseIDs, communities, ids)
	b.Queue(sqlEraseEvents, communities, created, ids)
	if len(tags.names) > 0 {
		b.Queue(sqlEraseTags, tags.communities, tags.names, tags.values, tags.created, tags.ids)
	}
}

// tagColumns are rows of ingest.event_tags as the arrays of a statement.
type tagColumns struct {
	communities []int64
	names       []string
	values      [][]byte
	created     []int64
	ids         [][]byte
	kinds       []int32
}

func newTagColumns(n int) *tagColumns {
	return &tagColumns{
		make([]int64, 0, n), make([]string, 0, n), make([][]byte, 0, n),
		make([]int64, 0, n), make([][]byte, 0, n), make([]int32, 0, n),
	}
}

// add adds a row for each distinct (letter, first value). A tag without a value has none to be found by.
func (c *tagColumns) add(community int64, ev *nostr.Event) {
	type row struct{ name, key string }
	var seen map[row]struct{}
	for _, t := range ev.Tags {
		if len(t) < 2 || !nostr.IsIndexed(t[0]) {
			continue
		}
		key := tagKey(t[1])
		if seen == nil {
			seen = make(map[row]struct{}, len(ev.Tags))
		}
		r := row{t[0], string(key)}
		if _, ok := seen[r]; ok {
			continue
		}
		seen[r] = struct{}{}
		c.communities = append(c.communities, community)
		c.names = append(c.names, t[0])
		c.values = append(c.values, key)
		c.created = append(c.created, ev.CreatedAt)
		c.ids = append(c.ids, ev.ID[:])
		c.kinds = append(c.kinds, int32(ev.Kind))
	}
}
