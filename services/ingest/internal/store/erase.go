package store

import (
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
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

// stored is what has to be known of an event in the database to remove it. It holds nothing of the event's
// JSON: one transaction may remove many large events.
type stored struct {
	community int64
	createdAt int64
	id        nostr.ID
	address   *address // nil unless it is kept under one
	tags      []tagRow
	reaction  *reactionRow // nil unless it is one, and names a target
	message   bool         // it may be part of a thread
	dueAt     int64        // when it is to be passed on once more, 0 for never
}

func newStored(community int64, ev *nostr.Event) stored {
	st := stored{community: community, createdAt: ev.CreatedAt, id: ev.ID, tags: tagRows(ev), message: policy.IsMessage(ev.Kind)}
	if _, ok := policy.CoordinateOf(ev); ok {
		at := addressOf(community, ev)
		st.address = &at
	}
	if r, ok := policy.ReactionOf(ev); ok {
		st.reaction = &reactionRow{r, community, ev.PubKey, ev.ID}
	}
	if ev.Kind == nostr.KindReminder {
		st.dueAt, _, _ = ev.NotBefore() // one that cannot be read was stored before there were reminders, and waits for nothing
	}
	return st
}

// collectStored reads rows of (ordinal, community, raw).
func collectStored(found func(i int, st stored)) func(pgx.Rows) error {
	return collectSome(found, func() {})
}

// collectSome is collectStored; passedOver is called for events that the statement has found and not read,
// whose raw is NULL.
func collectSome(found func(i int, st stored), passedOver func()) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var n, community int64
		var raw pgtype.DriverBytes // valid until the next row
		_, err := pgx.ForEachRow(rows, []any{&n, &community, &raw}, func() error {
			if raw == nil {
				passedOver()
				return nil
			}
			// Without limits: what was accepted once, under whatever limits, must stay removable.
			ev, err := wire.DecodeEvent(raw, wire.Limits{})
			if err != nil {
				return fmt.Errorf("decode stored event: %w", err)
			}
			found(int(n-1), newStored(community, ev))
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
		communities[i], created[i], ids[i] = st.community, st.createdAt, bytesOf(st.id)
		for _, r := range st.tags {
			tags.add(st.community, r, st.createdAt, ids[i], 0) // the kind is not asked for
		}
		if st.address != nil {
			a.add(*st.address)
			addressed = append(addressed, ids[i])
		}
	}
	if withAddresses && len(addressed) > 0 {
		b.Queue(sqlEraseAddresses, a.communities, a.kinds, a.pubkeys, a.ds, addressed)
	}
	queueEraseReactions(b, list)
	queueEraseReplies(b, list)
	queueCancel(b, list)
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

func (c *tagColumns) add(community int64, r tagRow, createdAt int64, id []byte, k nostr.Kind) {
	c.communities = append(c.communities, community)
	c.names = append(c.names, r.name)
	c.values = append(c.values, r.key)
	c.created = append(c.created, createdAt)
	c.ids = append(c.ids, id)
	c.kinds = append(c.kinds, int32(k))
}

// addEvent adds all rows of an event.
func (c *tagColumns) addEvent(community int64, ev *nostr.Event) {
	for _, r := range tagRows(ev) {
		c.add(community, r, ev.CreatedAt, ev.ID[:], ev.Kind)
	}
}

// tagRow is what a tag is found by: its name, which is one letter or kind.MarkName, and the TagKey of its first
// value.
type tagRow struct {
	name string
	key  []byte
}

// tagRows returns a row for each distinct (letter, first value), and one for the mark of an event's audience. A tag
// without a value has none to be found by. The rows share no memory with the event.
func tagRows(ev *nostr.Event) []tagRow {
	type seenRow struct {
		letter byte
		key    string
	}
	var seen map[seenRow]struct{}
	var rows []tagRow
	for _, t := range ev.Tags {
		if len(t) < 2 || !nostr.IsIndexed(t[0]) {
			continue
		}
		r := tagRow{string([]byte{t[0][0]}), tagKey(t[1])}
		if seen == nil {
			seen = make(map[seenRow]struct{}, len(ev.Tags))
		}
		s := seenRow{t[0][0], string(r.key)}
		if _, ok := seen[s]; ok {
			continue
		}
		seen[s] = struct{}{}
		rows = append(rows, r)
	}
	if mark, ok := kind.Mark(ev); ok {
		rows = append(rows, tagRow{kind.MarkName, tagKey(mark)})
	}
	return rows
}
