package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	"github.com/apiary-relay/apiary/pkg/placement"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements that store what has been decided.
const (
	sqlInsertEvents = `
INSERT INTO ingest.events (community_id, id, pubkey, kind, created_at, channel_id, expires_at, raw, in_thread)
SELECT community_id, id, pubkey, kind, created_at, nullif(channel_id, 0), nullif(expires_at, 0), raw, in_thread
FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::integer[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[], $9::boolean[])
    AS q (community_id, id, pubkey, kind, created_at, channel_id, expires_at, raw, in_thread)`

	sqlInsertTags = `
INSERT INTO ingest.event_tags (community_id, name, value, created_at, id, kind)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bigint[], $5::bytea[], $6::integer[])`

	// By addresses_pkey, on rows that this transaction has locked.
	sqlMoveAddresses = `
UPDATE ingest.addresses a SET created_at = q.created_at, id = q.id
FROM unnest($1::bigint[], $2::integer[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bytea[])
    AS q (community_id, kind, pubkey, d, created_at, id)
WHERE a.community_id = q.community_id AND a.kind = q.kind AND a.pubkey = q.pubkey AND a.d = q.d`

	// Conflicts on tombstones_pkey.
	sqlInsertTombstones = `
INSERT INTO ingest.tombstones (community_id, id, pubkey, deletion_id)
SELECT community_id, id, pubkey, $4 FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) AS q (community_id, id, pubkey)
ON CONFLICT DO NOTHING`

	// Conflicts on address_tombstones_pkey; the later deletion covers what the earlier did.
	sqlInsertAddressTombstones = `
INSERT INTO ingest.address_tombstones (community_id, kind, pubkey, d, until, deletion_id)
SELECT community_id, kind, pubkey, d, $5, $6
FROM unnest($1::bigint[], $2::integer[], $3::bytea[], $4::bytea[]) AS q (community_id, kind, pubkey, d)
ON CONFLICT (community_id, kind, pubkey, d) DO UPDATE
SET until = excluded.until, deletion_id = excluded.deletion_id
WHERE address_tombstones.until < excluded.until`

	sqlInsertOutbox = `
INSERT INTO ingest.outbox (payload) VALUES ($1) RETURNING id, created_at`
)

// write stores the accepted entries and their outbox row, and commits.
func (t *transaction) write(ctx context.Context, conn *pgx.Conn) error {
	if err := t.leaveThreadsOf(ctx, conn, t.accepted()); err != nil {
		return err
	}
	b := &pgx.Batch{}
	var accepted []*entry
	for _, e := range t.accepted() {
		if e.IsStored() {
			accepted = append(accepted, e)
		} else {
			queueRemember(b, e)
		}
	}
	queueUnclaim(b, t.entries)
	t.queueWinners(b, accepted)
	for _, e := range accepted {
		if e.Deletion != nil {
			queueErase(b, e.erase, true)
			queueTombstones(b, e)
		}
		if e.Vanish != nil {
			queueErase(b, e.erase, true)
			b.Queue(sqlInsertVanished, e.Community, e.Event.PubKey[:], e.Event.CreatedAt, e.Event.ID[:])
		}
	}
	if len(accepted) > 0 {
		queueEvents(b, accepted)
		t.queueReminders(b, accepted)
	}
	row, err := t.queueRow(b, accepted)
	if err != nil {
		return err
	}
	b.Queue(sqlCommit)
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	t.row = row
	return nil
}

// queueRow inserts the outbox row of what is stored, of what is said about threads, and of reminders whose time has come. It is nil if that is nothing, and
// complete when b has been read.
func (t *transaction) queueRow(b *pgx.Batch, accepted []*entry) (*Row, error) {
	summaries, err := t.summaries()
	if err != nil {
		return nil, err
	}
	all := slices.Concat(accepted, summaries, t.due)
	if len(all) == 0 {
		return nil, nil //nolint:nilnil // there is nothing to publish
	}
	payload, err := t.payload(all)
	if err != nil {
		return nil, err
	}
	if t.most != nil && slices.ContainsFunc(payload.GetPartitions(), func(p *busv1.PartitionBatch) bool { return len(p.GetBatch()) > t.most() }) {
		return nil, &RefusedError{policy.TooMuchFollows}
	}
	encoded, err := proto.Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("encode outbox payload: %w", err)
	}
	row := &Row{Partitions: payload.GetPartitions()}
	b.Queue(sqlInsertOutbox, encoded).QueryRow(func(r pgx.Row) error { return r.Scan(&row.ID, &row.CreatedAt) })
	return row, nil
}

// queueWinners points addresses to their new versions, removes the old ones, and claims the ids of all
// addressed events, which their addresses stood for so far.
func (t *transaction) queueWinners(b *pgx.Batch, accepted []*entry) {
	if len(t.winners) > 0 {
		a := newAddressColumns(len(t.winners))
		created, ids := make([]int64, len(t.winners)), make([][]byte, len(t.winners))
		var old []stored
		for i, e := range t.winners { // still in the order of their addresses
			a.add(addressOf(e.Community, e.Event))
			created[i], ids[i] = e.Event.CreatedAt, e.Event.ID[:]
			old = append(old, e.erase...)
		}
		b.Queue(sqlMoveAddresses, a.communities, a.kinds, a.pubkeys, a.ds, created, ids)
		queueErase(b, old, false)
	}
	var addressed []*entry
	for _, e := range accepted {
		if _, ok := e.Addressed(); ok {
			addressed = append(addressed, e)
		}
	}
	if len(addressed) > 0 {
		slices.SortFunc(addressed, compareIDs)
		b.Queue(sqlClaimIDs, idColumns(addressed)...)
	}
}

// queueUnclaim gives back the ids of what was refused after they were claimed: deletions that turned out to be too
// large, and second reactions.
func queueUnclaim(b *pgx.Batch, entries []*entry) {
	var communities []int64
	var ids [][]byte
	for _, e := range entries {
		if e.fresh && !e.verdict.Accepted() {
			communities, ids = append(communities, e.Community), append(ids, e.Event.ID[:])
		}
	}
	if len(ids) > 0 {
		b.Queue(sqlEraseIDs, communities, ids)
	}
}

func queueTombstones(b *pgx.Batch, e *entry) {
	if len(e.Deletion.IDs) > 0 {
		communities, ids, pubkeys := deletionColumns(e)
		b.Queue(sqlInsertTombstones, communities, ids, pubkeys, e.Event.ID[:])
	}
	if len(e.Deletion.Addresses) > 0 {
		a := deletionAddresses(e)
		b.Queue(sqlInsertAddressTombstones, a.communities, a.kinds, a.pubkeys, a.ds, e.Event.CreatedAt, e.Event.ID[:])
	}
}

func queueEvents(b *pgx.Batch, entries []*entry) {
	n := len(entries)
	communities, created, channels, expires := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	ids, pubkeys, raws, kinds := make([][]byte, n), make([][]byte, n), make([][]byte, n), make([]int32, n)
	inThread := make([]bool, n)
	tags := newTagColumns(4 * n)
	for i, e := range entries {
		communities[i], created[i], channels[i], expires[i] = e.Community, e.Event.CreatedAt, e.channel.ID, e.ExpiresAt
		ids[i], pubkeys[i], raws[i], kinds[i] = e.Event.ID[:], e.Event.PubKey[:], e.Raw, int32(e.Event.Kind)
		inThread[i] = e.Reply != nil && e.Reply.InThread()
		tags.addEvent(e.Community, e.Event)
	}
	b.Queue(sqlInsertEvents, communities, ids, pubkeys, kinds, created, channels, expires, raws, inThread)
	if len(tags.names) > 0 {
		b.Queue(sqlInsertTags, tags.communities, tags.names, tags.values, tags.created, tags.ids, tags.kinds)
	}
}

// payload groups the envelopes by partition, each in the order of the batch. A channel's state, which is delivered on
// the channel's topic and on the global one, is in the partitions of both.
func (t *transaction) payload(entries []*entry) (*busv1.OutboxPayload, error) {
	batches := map[uint32]*busv1.EnvelopeBatch{}
	for _, e := range entries {
		header := NewHeader(e.Candidate, t.partitions)
		header.CommunityAclVersion = t.state.Communities[e.Community].ACLVersion
		header.ChannelAclVersion = e.channel.ACLVersion
		header.CommitXid, header.DatabaseId, header.BegunAt = t.xid, t.database, t.begunAt
		header.JudgedAt, header.DueAt = t.judgedAt, e.dueAt
		partitions := []uint32{header.GetPartition()}
		if global := placement.Partition(e.Community, "", t.partitions); kind.Of(e.Event.Kind).Scope == kind.State && global != partitions[0] {
			partitions = append(partitions, global)
		}
		for _, p := range partitions {
			batch := batches[p]
			if batch == nil {
				batch = &busv1.EnvelopeBatch{}
				batches[p] = batch
			}
			batch.Envelopes = append(batch.Envelopes, &commonv1.Envelope{Header: header, Raw: e.Raw})
		}
	}
	return EncodePartitions(batches)
}

// Row is an outbox row: what has to be published because of one commit.
type Row struct {
	// ID is unique in the database.
	ID int64
	// CreatedAt is the time of the transaction. With ID it is unique also when the database is restored
	// to an earlier moment and gives the same ids again.
	CreatedAt time.Time
	// Partitions are the messages, ascending by partition.
	Partitions []*busv1.PartitionBatch
	// Err says why Partitions could not be read; such a row cannot be published.
	Err error
}

// Size is the payload's size in bytes, near enough for bounding queues.
func (r *Row) Size() int {
	n := 0
	for _, p := range r.Partitions {
		n += len(p.GetBatch())
	}
	return n
}
