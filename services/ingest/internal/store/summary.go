package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// By event_ids_pkey, events_time, channels_pkey, replies_expiring and replies_root: the channels of roots that are stored, how many
// replies are counted that have expired by $3 and are not removed yet, and the newest of the others.
const sqlThreads = `
SELECT q.n, c.h, c.id, c.acl_version, x.replies, x.descendants, r.created_at, r.pubkey
FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS q (community_id, id, n)
CROSS JOIN LATERAL (
    SELECT i.created_at FROM ingest.event_ids i WHERE i.community_id = q.community_id AND i.id = q.id OFFSET 0
) AS i
CROSS JOIN LATERAL (
    SELECT e.channel_id FROM ingest.events e
    WHERE e.community_id = q.community_id AND e.created_at = i.created_at AND e.id = q.id OFFSET 0
) AS e
CROSS JOIN LATERAL (
    SELECT c.h, c.id, c.acl_version FROM ingest.channels c
    WHERE c.community_id = q.community_id AND c.id = e.channel_id OFFSET 0
) AS c
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE x.parent_id = q.id) AS replies, count(*) AS descendants FROM ingest.replies x
    WHERE x.community_id = q.community_id AND x.root_id = q.id AND x.expires_at <= $3
) AS x
LEFT JOIN LATERAL (
    SELECT r.created_at, r.pubkey FROM ingest.replies r
    WHERE r.community_id = q.community_id AND r.root_id = q.id AND (r.expires_at IS NULL OR r.expires_at > $3)
    ORDER BY r.created_at DESC, r.id DESC LIMIT 32
) AS r ON true
ORDER BY q.n, r.created_at DESC`

// thread is a thread that the transaction has changed.
type thread struct {
	root                 policy.EventKey
	replies, descendants int
	at                   int64 // created_at of the summary
	h                    string
	channel              policy.Channel // zero unless the root is still there
	last                 *int64
	participants         []nostr.PubKey
}

// threadSummary is the content of a summary. Participants are the authors of the newest replies, the newest first.
type threadSummary struct {
	ReplyCount      int      `json:"reply_count"`
	DescendantCount int      `json:"descendant_count"`
	LastReplyAt     *int64   `json:"last_reply_at"`
	Participants    []string `json:"participants"`
}

// changed notes the new counts of a root.
func (t *transaction) changed(root policy.EventKey, replies, descendants int, at int64) {
	if t.threads == nil {
		t.threads = make(map[policy.EventKey]*thread)
	}
	t.threads[root] = &thread{root: root, replies: replies, descendants: descendants, at: at}
}

// queueThreads reads what summaries of the roots say besides the counts; of those whose threads have not changed it is
// not kept.
func (t *transaction) queueThreads(b *pgx.Batch, roots []policy.EventKey) {
	communities, ids := make([]int64, len(roots)), make([][]byte, len(roots))
	for i, r := range roots {
		communities[i], ids[i] = r.Community, bytesOf(r.ID)
	}
	b.Queue(sqlThreads, communities, ids, t.begunAt/1e6).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var n, id, acl int64
			var replies, descendants int
			var h string
			var created *int64
			var pubkey []byte
			if err := rows.Scan(&n, &h, &id, &acl, &replies, &descendants, &created, &pubkey); err != nil {
				return err
			}
			th := t.threads[roots[n-1]]
			if th == nil {
				continue
			}
			if th.channel.ID == 0 { // its first row
				th.replies, th.descendants = th.replies-replies, th.descendants-descendants
			}
			th.h, th.channel = h, policy.Channel{ID: id, ACLVersion: uint64(acl)}
			if created != nil {
				th.add(*created, nostr.PubKey(pubkey))
			}
		}
		return rows.Err()
	})
}

// add takes in a reply, the newest first.
func (th *thread) add(created int64, author nostr.PubKey) {
	if th.last == nil {
		th.last = &created
	}
	if len(th.participants) < policy.MaxParticipants && !slices.Contains(th.participants, author) {
		th.participants = append(th.participants, author)
	}
}

// leaveThreads takes messages that will be erased out of their threads now, so that the relay can say how many replies
// are left, of up to limit threads. Without a key it says nothing, and they leave their threads when they are erased.
func (t *transaction) leaveThreads(ctx context.Context, conn *pgx.Conn, list []stored, limit int) error {
	communities, ids := messageColumns(list)
	if t.key == nil || len(ids) == 0 {
		return nil
	}
	var roots []policy.EventKey
	rows, err := conn.Query(ctx, sqlEraseReplies, communities, ids, t.begunAt/1e6)
	if err == nil {
		var c replyCount
		_, err = pgx.ForEachRow(rows, c.columns(), func() error {
			if c.root && len(roots) < limit {
				roots = append(roots, c.key())
				t.changed(c.key(), c.replies, c.descendants, c.at)
			}
			return nil
		})
	}
	if err == nil && len(roots) > 0 {
		b := &pgx.Batch{}
		t.queueThreads(b, roots)
		err = conn.SendBatch(ctx, b).Close()
	}
	if err != nil {
		return fmt.Errorf("take messages out of threads: %w", err)
	}
	return nil
}

// leaveThreadsOf does so for deletions.
func (t *transaction) leaveThreadsOf(ctx context.Context, conn *pgx.Conn, entries []*entry) error {
	var list []stored
	limit := 0
	for _, e := range entries {
		if e.Deletion != nil {
			list = append(list, e.erase...)
			limit += e.Deletion.Summaries()
		}
	}
	return t.leaveThreads(ctx, conn, list, limit)
}

// summaries returns what the relay says of the threads that have changed. It is passed on to who listens and not
// stored.
func (t *transaction) summaries() ([]*entry, error) {
	changed := make([]*thread, 0, len(t.threads))
	for _, th := range t.threads {
		if th.channel.ID != 0 {
			changed = append(changed, th)
		}
	}
	slices.SortFunc(changed, func(a, b *thread) int {
		return cmp.Or(cmp.Compare(a.root.Community, b.root.Community), slices.Compare(a.root.ID[:], b.root.ID[:]))
	})
	list := make([]*entry, len(changed))
	for i, th := range changed {
		said := threadSummary{th.replies, th.descendants, th.last, make([]string, len(th.participants))}
		for k, p := range th.participants {
			said.Participants[k] = p.String()
		}
		content, err := json.Marshal(said)
		if err != nil {
			return nil, fmt.Errorf("encode summary of a thread: %w", err)
		}
		root := th.root.ID.String()
		ev := &nostr.Event{
			Kind: nostr.KindThreadSummary, CreatedAt: th.at, Content: string(content),
			Tags: nostr.Tags{{"e", root}, {"d", root}, {"h", th.h}},
		}
		if err := ev.Sign(t.key); err != nil {
			return nil, fmt.Errorf("sign summary of a thread: %w", err)
		}
		e := &entry{Candidate: &policy.Candidate{Channel: th.h, Event: ev}, channel: th.channel}
		e.Community, e.Raw = th.root.Community, ev.AppendJSON(nil)
		list[i] = e
	}
	return list, nil
}
