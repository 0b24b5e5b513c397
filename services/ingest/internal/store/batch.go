package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Result is the outcome of a committed batch.
type Result struct {
	// Verdicts answer the candidates, in their order.
	Verdicts []policy.Verdict
	// Row is the outbox row to publish, nil when nothing was stored.
	Row *Row
	// Left is set when SweepVanished has something to do because of the batch.
	Left bool
}

// entry is one candidate on its way through the transaction.
type entry struct {
	*policy.Candidate
	verdict policy.Verdict
	channel policy.Channel
	fresh   bool     // its id, or its address, was claimed for the first time
	erase   []stored // what it replaces or deletes
	more    bool     // a request to vanish left events to SweepVanished

	doomed   bool // a command that cannot be granted, so that the community need not be held for it
	done     bool // a command that was carried out
	followUp bool // the relay signed it because of a command or another change

	// recalled is what the author of a command that was carried out before is told instead of the verdict, if there is
	// something to say.
	recalled policy.Verdict

	dueAt int64 // a reminder that is passed on because this time has come
}

// transaction is one attempt to store a batch. It lives on one goroutine and one connection.
type transaction struct {
	partitions uint32
	eraseBytes int64
	most       func() int
	counts     counts
	joins      *policy.JoinPolicy
	key        *nostr.SecretKey // of the relay, nil without one
	entries    []*entry         // the batch, then what the relay signs because of it
	state      policy.State
	xid        uint64
	database   uint64
	begunAt    int64 // microseconds since the Unix epoch, by the database's clock
	judgedAt   int64 // likewise: the last time at which it was known that the transaction had not committed yet
	// winners are the entries whose address row exists already and has to be pointed to them.
	winners []*entry
	row     *Row
	// revoked are those whose access was taken; their versions are filled in by revocations.
	revoked []Revocation
	// threads are those that the batch changes, by their roots; empty when the relay has no key to say so.
	threads map[policy.EventKey]*thread
	// due are stored reminders whose time has come; they are passed on once more.
	due []*entry
	// locked are the advisory locks that are held, nil unless an entry follows its target into a channel.
	locked map[int64]bool
}

// Commit stores a batch in one transaction and three round trips. The batch must be such that no candidate
// depends on another one: at most one event of each id and address, a deletion without other events of
// its author, a request to vanish or a command without other events of the community or channel that it holds, nothing
// that another one is about.
//
// The verdicts hold only if the error is nil. An error leaves nothing stored, or everything if the
// connection broke during the commit; in either case the batch may be sent again. A RefusedError is about one of the
// candidates.
func (s *Store) Commit(ctx context.Context, batch []*policy.Candidate) (Result, error) {
	var result Result
	var revoked []Revocation
	err := s.retry(ctx, func(conn *pgx.Conn) error {
		t := s.newTransaction(batch)
		if err := t.run(ctx, conn); err != nil {
			return err
		}
		result = Result{Verdicts: make([]policy.Verdict, len(batch)), Row: t.row}
		revoked = t.revocations()
		for i, e := range t.entries[:len(batch)] {
			result.Verdicts[i] = e.verdict
			if e.recalled != (policy.Verdict{}) {
				result.Verdicts[i] = e.recalled
			}
			result.Left = result.Left || e.more
		}
		return nil
	})
	if err != nil {
		return Result{}, fmt.Errorf("commit batch of %d: %w", len(batch), err)
	}
	s.tell(ctx, revoked)
	return result, nil
}

func (s *Store) newTransaction(batch []*policy.Candidate) *transaction {
	t := &transaction{partitions: s.partitions, eraseBytes: s.eraseBytes, most: s.most, key: s.key, counts: s.counts, joins: s.joins, entries: make([]*entry, len(batch))}
	for i, c := range batch {
		t.entries[i] = &entry{Candidate: c}
	}
	return t
}

func (t *transaction) run(ctx context.Context, conn *pgx.Conn) error {
	if err := t.read(ctx, conn); err != nil {
		return err
	}
	if err := t.execute(ctx, conn); err != nil {
		return err
	}
	if len(t.accepted()) == 0 {
		return nil // withConn rolls back
	}
	if err := t.claim(ctx, conn); err != nil {
		return err
	}
	if len(t.accepted()) == 0 {
		return nil
	}
	return t.write(ctx, conn)
}

// revocations returns whose access was taken, with the versions that the communities have after the transaction.
func (t *transaction) revocations() []Revocation {
	for i := range t.revoked {
		t.revoked[i].ACLVersion = t.state.Communities[t.revoked[i].Community].ACLVersion
	}
	return t.revoked
}

// accepted returns the entries that nothing has refused so far.
func (t *transaction) accepted() []*entry {
	list := make([]*entry, 0, len(t.entries))
	for _, e := range t.entries {
		if e.verdict.Accepted() {
			list = append(list, e)
		}
	}
	return list
}

// sqlTransaction names this transaction: its id, assigned here so that every header can carry it, the
// cluster that the id belongs to, and its beginning, which tells it from another one that had the id before
// a crash; and the time. The cluster is a read of a file of one block; asking in the transaction makes it right also after
// a pool was pointed elsewhere.
const sqlTransaction = `
SELECT pg_current_xact_id()::text::bigint, (SELECT system_identifier FROM pg_control_system()),
    (extract(epoch FROM transaction_timestamp()) * 1000000)::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

// sqlClock is the time, in microseconds since the Unix epoch.
const sqlClock = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

// begin begins the transaction with its locks and learns its name.
func (t *transaction) begin(b *pgx.Batch, locks lockSet) {
	b.Queue(sqlBegin)
	t.queueLocks(b, locks)
	b.Queue(sqlTransaction).QueryRow(func(row pgx.Row) error {
		var xid, database int64
		err := row.Scan(&xid, &database, &t.begunAt, &t.judgedAt)
		t.xid, t.database = uint64(xid), uint64(database)
		return err
	})
}

// read begins the transaction, takes its locks, and reads and judges under them. Each statement has its own
// snapshot, taken after the locks were granted.
func (t *transaction) read(ctx context.Context, conn *pgx.Conn) error {
	if err := t.doom(ctx, conn); err != nil {
		return err
	}
	locks := lockSet{}
	candidates := make([]*policy.Candidate, len(t.entries))
	for i, e := range t.entries {
		candidates[i] = e.Candidate
		locks.shared(communityLock(e.Community))
		if (e.Deletion != nil || e.Whole()) && !e.doomed {
			locks.exclusive(communityLock(e.Community))
		}
		if e.Channel != "" {
			locks.shared(channelLock(e.ChannelKey()))
		}
		if key, ok := e.Holds(); ok {
			locks.exclusive(channelLock(key))
		}
		if key, ok := e.Creates(); ok {
			locks.exclusive(channelLock(key))
		}
	}
	b := &pgx.Batch{}
	t.begin(b, locks)
	ask(candidates).queue(b, &t.state, true)
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	if err := t.settle(); err != nil {
		return err
	}
	for _, e := range t.entries {
		e.verdict = policy.Admit(e.Candidate, &t.state)
		e.channel = t.state.Channels[e.ChannelKey()]
	}
	return nil
}
