package store

import (
	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// OFFSET 0 keeps the planner from merging a look-up into the query around it: it has no good statistics of what has
// been written just now, and would read all events of a community to find the few that are asked for.
const (
	// By event_ids_pkey, events_time, vanished_pkey, channels_pkey, channel_members_pkey, replies_pkey, agents_pkey, agents_owner
	// and event_tags_value: for each target of a candidate whether the candidate, own, is stored, and the target if it is
	// stored and to be seen. The writer is NULL unless the candidate follows its target into a channel. root is the
	// value of an e tag, NULL unless the target is the parent of a reply that names a root. by is the author of the
	// candidate, NULL unless it matters where it stands to the target.
	sqlReadTargets = `
SELECT q.n, EXISTS (SELECT FROM ingest.event_ids s WHERE s.community_id = q.community_id AND s.id = q.own OFFSET 0),
    CASE WHEN e.channel_id IS NULL OR c.id IS NOT NULL THEN e.kind END, e.pubkey,
    c.h, c.id, c.visibility = 'private', c.archived_at IS NOT NULL, c.previous_required, c.acl_version,
    EXISTS (SELECT FROM ingest.channel_members m
        WHERE m.community_id = q.community_id AND m.channel_id = c.id AND m.pubkey = q.writer OFFSET 0),
    r.root_id, coalesce(r.depth, 0), EXISTS (SELECT FROM ingest.event_tags t
        WHERE t.community_id = q.community_id AND t.name = 'e' AND t.value = q.root
            AND t.created_at = e.created_at AND t.id = q.id OFFSET 0),
    EXISTS (SELECT FROM ingest.agents a
        WHERE a.community_id = q.community_id AND a.pubkey = e.pubkey AND a.owner = q.by OFFSET 0),
    EXISTS (SELECT FROM ingest.event_tags t
        WHERE t.community_id = q.community_id AND t.name = 'p' AND t.value = convert_to(encode(q.by, 'hex'), 'UTF8')
            AND t.created_at = e.created_at AND t.id = q.id OFFSET 0),
    EXISTS (SELECT FROM ingest.agents a
        WHERE a.owner = q.by AND a.community_id = q.community_id AND EXISTS (SELECT FROM ingest.event_tags t
            WHERE t.community_id = q.community_id AND t.name = 'p' AND t.value = convert_to(encode(a.pubkey, 'hex'), 'UTF8')
                AND t.created_at = e.created_at AND t.id = q.id OFFSET 0) OFFSET 0)
FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[])
    WITH ORDINALITY AS q (community_id, id, own, writer, root, by, n)
LEFT JOIN LATERAL (
    SELECT i.created_at FROM ingest.event_ids i WHERE i.community_id = q.community_id AND i.id = q.id OFFSET 0
) AS i ON true
LEFT JOIN LATERAL (
    SELECT e.kind, e.pubkey, e.channel_id, e.created_at FROM ingest.events e
    WHERE e.community_id = q.community_id AND e.created_at = i.created_at AND e.id = q.id
        AND (e.expires_at IS NULL OR e.expires_at > extract(epoch FROM now()))
        AND NOT EXISTS (SELECT FROM ingest.vanished v
            WHERE v.community_id = q.community_id AND v.pubkey = e.pubkey AND v.until >= e.created_at OFFSET 0)
    OFFSET 0
) AS e ON true
LEFT JOIN LATERAL (
    SELECT c.* FROM ingest.channels c WHERE c.community_id = q.community_id AND c.id = e.channel_id OFFSET 0
) AS c ON true
LEFT JOIN LATERAL (
    SELECT r.root_id, r.depth FROM ingest.replies r
    WHERE r.community_id = q.community_id AND r.id = q.id AND e.kind IS NOT NULL OFFSET 0
) AS r ON true`

	// sqlLock, together with the channels of the targets ($3, $4): by event_ids_pkey, events_time and
	// channels_pkey. The key of a channel is channelLock's. Returns what is locked, in order.
	sqlLockWithTargets = `
SELECT key, CASE WHEN exclusive THEN pg_advisory_xact_lock(key)::text ELSE pg_advisory_xact_lock_shared(key)::text END
FROM (
    SELECT key, bool_or(exclusive) AS exclusive
    FROM (
        SELECT key, exclusive FROM unnest($1::bigint[], $2::boolean[]) AS l (key, exclusive)
        UNION ALL
        SELECT 2::bigint << 56
            | ('x' || encode(substr(sha256(int8send(c.community_id) || convert_to(c.h, 'UTF8')), 1, 7), 'hex'))::bit(56)::bigint,
            false
        FROM unnest($3::bigint[], $4::bytea[]) AS q (community_id, id)
        CROSS JOIN LATERAL (
            SELECT i.created_at FROM ingest.event_ids i WHERE i.community_id = q.community_id AND i.id = q.id OFFSET 0
        ) AS i
        CROSS JOIN LATERAL (
            SELECT e.channel_id FROM ingest.events e
            WHERE e.community_id = q.community_id AND e.created_at = i.created_at AND e.id = q.id OFFSET 0
        ) AS e
        CROSS JOIN LATERAL (
            SELECT c.community_id, c.h FROM ingest.channels c
            WHERE c.community_id = q.community_id AND c.id = e.channel_id OFFSET 0
        ) AS c
    ) AS each_lock (key, exclusive)
    GROUP BY key ORDER BY key
) AS sorted`

	// By event_ids_pkey, addresses_pkey, events_time and channels_pkey: the channel of the first target of a
	// deletion that is stored, its author's own and in a channel; those that are named by id come first.
	sqlDeletedFrom = `
SELECT c.h, c.id, c.visibility = 'private', c.archived_at IS NOT NULL, c.acl_version
FROM (
    SELECT false AS by_address, q.n, q.id, i.created_at
    FROM unnest($3::bytea[]) WITH ORDINALITY AS q (id, n)
    CROSS JOIN LATERAL (
        SELECT i.created_at FROM ingest.event_ids i WHERE i.community_id = $1 AND i.id = q.id OFFSET 0
    ) AS i
    UNION ALL
    SELECT true, q.n, a.id, a.created_at
    FROM unnest($4::integer[], $5::bytea[]) WITH ORDINALITY AS q (kind, d, n)
    CROSS JOIN LATERAL (
        SELECT a.id, a.created_at FROM ingest.addresses a
        WHERE a.community_id = $1 AND a.kind = q.kind AND a.pubkey = $2 AND a.d = q.d OFFSET 0
    ) AS a
) AS t
CROSS JOIN LATERAL (
    SELECT e.channel_id FROM ingest.events e
    WHERE e.community_id = $1 AND e.created_at = t.created_at AND e.id = t.id AND e.pubkey = $2 OFFSET 0
) AS e
CROSS JOIN LATERAL (
    SELECT c.* FROM ingest.channels c WHERE c.community_id = $1 AND c.id = e.channel_id OFFSET 0
) AS c
ORDER BY t.by_address, t.n LIMIT 1`
)

// queueDeletedFrom moves a deletion without an h tag to the channel of what it deletes, so that those who have seen
// that are told. Its author need not be a member any more: everybody may take back what is theirs. The
// community is held exclusively, and with it all of its channels.
func queueDeletedFrom(b *pgx.Batch, e *entry) {
	if e.Channel != "" {
		return
	}
	a := deletionAddresses(e)
	_, ids, _ := deletionColumns(e)
	b.Queue(sqlDeletedFrom, e.Community, e.Event.PubKey[:], ids, a.kinds, a.ds).Query(func(rows pgx.Rows) error {
		var h string
		var channel policy.Channel
		var acl int64
		_, err := pgx.ForEachRow(rows, []any{&h, &channel.ID, &channel.Private, &channel.Archived, &acl}, func() error {
			channel.ACLVersion = uint64(acl)
			moved := *e.Candidate
			moved.Channel = h
			e.Candidate, e.channel = &moved, channel
			return nil
		})
		return err
	})
}

// following returns the entries that belong to the channel of their target.
func (t *transaction) following() []*entry {
	var list []*entry
	for _, e := range t.entries {
		if e.FollowsTarget() {
			list = append(list, e)
		}
	}
	return list
}

// queueLocks takes the locks, with those of the channels that entries follow their targets into.
func (t *transaction) queueLocks(b *pgx.Batch, locks lockSet) {
	following := t.following()
	if len(following) == 0 {
		locks.queue(b)
		return
	}
	communities, ids := make([]int64, len(following)), make([][]byte, len(following))
	for i, e := range following {
		communities[i], ids[i] = e.Community, bytesOf(e.Reaction.Target)
	}
	keys, exclusive := locks.columns()
	t.locked = make(map[int64]bool, len(keys)+len(following))
	b.Queue(sqlLockWithTargets, keys, exclusive, communities, ids).Query(func(rows pgx.Rows) error {
		var key int64
		_, err := pgx.ForEachRow(rows, []any{&key, nil}, func() error {
			t.locked[key] = true
			return nil
		})
		return err
	})
}

// settle puts the entries where they belong. A target that was stored after the locks were looked for is in a channel
// that is not held: then it has to be tried again.
func (t *transaction) settle() error {
	for _, e := range t.entries {
		if len(e.Targets()) == 0 {
			continue
		}
		follows := e.FollowsTarget()
		e.Candidate = policy.Settle(e.Candidate, &t.state)
		if follows && e.Channel != "" && !t.locked[channelLock(e.ChannelKey())] {
			return errMoved
		}
	}
	return nil
}

// queueTargetState asks for the candidates' targets.
func (q *question) queueTargetState(b *pgx.Batch, st *policy.State) {
	st.Targets, st.RootNamed = map[policy.EventKey]policy.Target{}, map[policy.EventKey]bool{}
	st.Standings = map[policy.EventKey]policy.Standing{}
	var asking []*policy.Candidate
	var communities []int64
	var ids, own, writers, roots, authors [][]byte
	for _, c := range q.all {
		for _, id := range c.Targets() {
			asking = append(asking, c)
			communities, ids, own = append(communities, c.Community), append(ids, bytesOf(id)), append(own, c.Event.ID[:])
			var writer, root, author []byte
			if c.Stands() {
				author = c.Event.PubKey[:]
			}
			if c.FollowsTarget() {
				writer = c.Event.PubKey[:]
			}
			if c.Reply != nil && id == c.Reply.Parent && !c.Reply.Root.IsZero() {
				root = tagKey(c.Reply.Root.String())
			}
			writers, roots, authors = append(writers, writer), append(roots, root), append(authors, author)
		}
	}
	if len(asking) == 0 {
		return
	}
	b.Queue(sqlReadTargets, communities, ids, own, writers, roots, authors).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var r targetRow
			if err := r.scan(rows); err != nil {
				return err
			}
			r.keep(asking[r.n-1], nostr.ID(ids[r.n-1]), st)
		}
		return rows.Err()
	})
}

// targetRow is a row of sqlReadTargets. The kind is nil when there is no such target or its channel is gone, the h value when it is in no
// channel.
type targetRow struct {
	n                 int64
	stored            bool
	kind              *int32
	pubkey            []byte
	h                 *string
	id, acl           *int64
	private, archived *bool
	previous          *bool
	member            bool
	root              []byte
	depth             int
	rootNamed         bool
	standing          policy.Standing
}

func (r *targetRow) scan(rows pgx.Rows) error {
	return rows.Scan(&r.n, &r.stored, &r.kind, &r.pubkey, &r.h, &r.id, &r.private, &r.archived, &r.previous, &r.acl, &r.member,
		&r.root, &r.depth, &r.rootNamed, &r.standing.OwnsAuthor, &r.standing.Named, &r.standing.OwnsNamed)
}

func (r *targetRow) keep(c *policy.Candidate, id nostr.ID, st *policy.State) {
	if r.stored {
		st.Stored[c.Key()] = true
	}
	if r.kind == nil {
		return
	}
	target := policy.Target{Kind: nostr.Kind(*r.kind), PubKey: nostr.PubKey(r.pubkey), Depth: r.depth}
	if r.root != nil {
		target.Root = nostr.ID(r.root)
	}
	if c.Stands() {
		st.Standings[c.Key()] = r.standing
	}
	if r.rootNamed {
		st.RootNamed[c.Key()] = true
	}
	if r.h != nil {
		target.Channel = *r.h
	}
	st.Targets[policy.EventKey{Community: c.Community, ID: id}] = target
	if r.h == nil || !c.FollowsTarget() {
		return
	}
	key := policy.ChannelKey{Community: c.Community, H: *r.h}
	st.Channels[key] = policy.Channel{
		ID: *r.id, Private: *r.private, Archived: *r.archived, PreviousRequired: *r.previous, ACLVersion: uint64(*r.acl),
	}
	if r.member {
		st.ChannelMembers[policy.ChannelMemberKey{ChannelKey: key, PubKey: c.Event.PubKey}] = true
	}
}
