package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/tenant"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Queries of the State. Each takes what is asked about as arrays and answers with the ordinal number, from
// 1, of what it found.
const (
	// By communities_pkey.
	sqlCommunities = `
SELECT id, access = 'closed', min_pow, unknown_kinds = 'registry-only', acl_version, archived_at IS NOT NULL, deleting_at IS NOT NULL
FROM ingest.communities WHERE id = ANY($1::bigint[])`

	// By channels_h_key.
	sqlChannels = `
SELECT q.n, c.id, c.visibility = 'private', c.archived_at IS NOT NULL, c.previous_required, c.acl_version
FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS q (community_id, h, n)
JOIN ingest.channels c ON c.community_id = q.community_id AND c.h = q.h`

	// By community_members_pkey and agents_pkey, for closed communities only.
	sqlMembers = `
SELECT q.n
FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS q (community_id, pubkey, n)
JOIN ingest.communities c ON c.id = q.community_id AND c.access = 'closed'
WHERE EXISTS (SELECT FROM ingest.admitted m WHERE m.community_id = q.community_id AND m.pubkey = q.pubkey OFFSET 0)`

	// By channels_h_key and channel_members_pkey, for private channels only.
	sqlChannelMembers = `
SELECT q.n
FROM unnest($1::bigint[], $2::text[], $3::bytea[]) WITH ORDINALITY AS q (community_id, h, pubkey, n)
JOIN ingest.channels c ON c.community_id = q.community_id AND c.h = q.h AND c.visibility = 'private'
JOIN ingest.channel_members m ON m.community_id = c.community_id AND m.channel_id = c.id AND m.pubkey = q.pubkey`

	// By allowed_kinds_pkey. A community without any row takes every kind.
	sqlRefusedKinds = `
SELECT q.n
FROM unnest($1::bigint[], $2::integer[]) WITH ORDINALITY AS q (community_id, kind, n)
WHERE EXISTS (SELECT FROM ingest.allowed_kinds a WHERE a.community_id = q.community_id)
    AND NOT EXISTS (SELECT FROM ingest.allowed_kinds a WHERE a.community_id = q.community_id AND a.kind = q.kind)`

	// By banned_pubkeys_pkey and agents_pkey.
	sqlBannedPubKeys = `
SELECT q.n
FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS q (community_id, pubkey, n)
WHERE EXISTS (SELECT FROM ingest.barred b WHERE b.community_id = q.community_id AND b.pubkey = q.pubkey OFFSET 0)`

	// By timeouts_pkey and agents_pkey.
	sqlTimedOut = `
SELECT q.n, ceil(extract(epoch FROM t.expires_at))::bigint
FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS q (community_id, pubkey, n)
CROSS JOIN LATERAL (
    SELECT max(s.expires_at) AS expires_at FROM ingest.silenced s WHERE s.community_id = q.community_id AND s.pubkey = q.pubkey OFFSET 0
) AS t
WHERE t.expires_at IS NOT NULL`

	// By agents_pkey.
	sqlOwners = `
SELECT q.n, a.owner
FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS q (community_id, pubkey, n)
JOIN ingest.agents a ON a.community_id = q.community_id AND a.pubkey = q.pubkey`

	// By banned_events_pkey.
	sqlBannedEvents = `
SELECT q.n
FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS q (community_id, id, n)
JOIN ingest.banned_events b ON b.community_id = q.community_id AND b.id = q.id`

	// By vanished_pkey.
	sqlVanished = `
SELECT q.n
FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) WITH ORDINALITY AS q (community_id, pubkey, created_at, n)
JOIN ingest.vanished v ON v.community_id = q.community_id AND v.pubkey = q.pubkey AND q.created_at <= v.until`

	// By community_hosts_pkey.
	sqlHosts = `
SELECT host, community_id FROM ingest.community_hosts WHERE host = ANY($1::text[]) AND community_id IS NOT NULL`

	// By tombstones_pkey.
	sqlTombstones = `
SELECT q.n
FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) WITH ORDINALITY AS q (community_id, id, pubkey, n)
JOIN ingest.tombstones t ON t.community_id = q.community_id AND t.id = q.id AND t.pubkey = q.pubkey`

	// By address_tombstones_pkey.
	sqlAddressTombstones = `
SELECT q.n
FROM unnest($1::bigint[], $2::integer[], $3::bytea[], $4::bytea[], $5::bigint[])
    WITH ORDINALITY AS q (community_id, kind, pubkey, d, created_at, n)
JOIN ingest.address_tombstones t
    ON t.community_id = q.community_id AND t.kind = q.kind AND t.pubkey = q.pubkey AND t.d = q.d
WHERE q.created_at <= t.until`

	// By event_ids_pkey.
	sqlStoredIDs = `
SELECT q.n
FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS q (community_id, id, n)
JOIN ingest.event_ids i ON i.community_id = q.community_id AND i.id = q.id`
)

// question collects what the State has to answer about some candidates, each thing once.
type question struct {
	communities    ordered[int64]
	channels       ordered[policy.ChannelKey]
	members        ordered[policy.MemberKey]
	channelMembers ordered[policy.ChannelMemberKey]
	kinds          ordered[policy.KindKey]
	parties        ordered[policy.MemberKey]
	agents         ordered[policy.MemberKey]
	hosts          ordered[string]
	all            []*policy.Candidate
	deletable      []*policy.Candidate // every candidate but deletions and requests to vanish (NIP-09, NIP-62)
	addressed      []*policy.Candidate
	done           []*policy.Candidate // commands, which may have been carried out already
}

func ask(candidates []*policy.Candidate) *question {
	q := &question{all: candidates}
	for _, c := range candidates {
		q.communities.add(c.Community)
		q.kinds.add(policy.KindKey{Community: c.Community, Kind: c.Event.Kind})
		for _, p := range c.Parties() {
			q.parties.add(policy.MemberKey{Community: c.Community, PubKey: p})
		}
		if c.Vanish != nil {
			for _, h := range c.Vanish.Hosts {
				for _, name := range tenant.Candidates(h) {
					q.hosts.add(name)
				}
			}
		}
		if c.Channel != "" {
			q.channels.add(c.ChannelKey())
		}
		for _, w := range c.Writers() {
			q.members.add(policy.MemberKey{Community: c.Community, PubKey: w})
			if c.Channel != "" {
				q.channelMembers.add(policy.ChannelMemberKey{ChannelKey: c.ChannelKey(), PubKey: w})
			}
		}
		if c.Agency != nil {
			q.agents.add(policy.MemberKey{Community: c.Community, PubKey: c.Agency.Agent})
		}
		if c.Deletion == nil && c.Vanish == nil {
			q.deletable = append(q.deletable, c)
		}
		if _, ok := c.Addressed(); ok {
			q.addressed = append(q.addressed, c)
		}
		if c.Command != nil {
			q.done = append(q.done, c)
		}
	}
	return q
}

// queue adds the queries to b; st is complete when b has been read. withStored also asks for tombstones and
// for what is stored, which events that are never stored need not know.
func (q *question) queue(b *pgx.Batch, st *policy.State, withStored bool) {
	*st = policy.State{
		Communities:    make(map[int64]policy.Community, len(q.communities.list)),
		Channels:       make(map[policy.ChannelKey]policy.Channel, len(q.channels.list)),
		Members:        map[policy.MemberKey]bool{},
		ChannelMembers: map[policy.ChannelMemberKey]bool{},
		Hosts:          map[string]int64{},
		RefusedKinds:   map[policy.KindKey]bool{},
		Banned:         map[policy.MemberKey]bool{},
		TimedOut:       map[policy.MemberKey]int64{},
		Owners:         map[policy.MemberKey]nostr.PubKey{},
		Deleted:        map[policy.EventKey]bool{},
		BannedEvents:   map[policy.EventKey]bool{},
		Vanished:       map[policy.EventKey]bool{},
		Stored:         map[policy.EventKey]bool{},
	}
	q.queueDirectory(b, st)
	q.queueModeration(b, st)
	if withStored {
		q.queueReferences(b, st)
		q.queueRemoved(b, st)
		q.queueEvents(b, st)
		q.queueTargetState(b, st)
	}
}

func (q *question) queueDirectory(b *pgx.Batch, st *policy.State) {
	b.Queue(sqlCommunities, q.communities.list).Query(func(rows pgx.Rows) error {
		var id, acl int64
		var c policy.Community
		_, err := pgx.ForEachRow(rows, []any{&id, &c.Closed, &c.MinPow, &c.RegistryOnly, &acl, &c.Archived, &c.Deleting}, func() error {
			c.ACLVersion = uint64(acl)
			st.Communities[id] = c
			return nil
		})
		return err
	})
	communities, pubkeys := memberColumns(q.members.list)
	b.Queue(sqlMembers, communities, pubkeys).Query(ordinals(func(n int) { st.Members[q.members.list[n]] = true }))
	if len(q.agents.list) > 0 {
		communities, pubkeys := memberColumns(q.agents.list)
		b.Queue(sqlOwners, communities, pubkeys).Query(func(rows pgx.Rows) error {
			var n int64
			var owner []byte
			_, err := pgx.ForEachRow(rows, []any{&n, &owner}, func() error {
				st.Owners[q.agents.list[n-1]] = nostr.PubKey(owner)
				return nil
			})
			return err
		})
	}
	if len(q.channels.list) == 0 {
		return
	}
	communities = make([]int64, len(q.channels.list))
	hs := make([]string, len(q.channels.list))
	for i, c := range q.channels.list {
		communities[i], hs[i] = c.Community, c.H
	}
	b.Queue(sqlChannels, communities, hs).Query(func(rows pgx.Rows) error {
		var n, id, acl int64
		var private, archived, previous bool
		_, err := pgx.ForEachRow(rows, []any{&n, &id, &private, &archived, &previous, &acl}, func() error {
			st.Channels[q.channels.list[n-1]] = policy.Channel{
				ID: id, Private: private, Archived: archived, PreviousRequired: previous, ACLVersion: uint64(acl),
			}
			return nil
		})
		return err
	})
	communities, hs, pubkeys = make([]int64, len(q.channelMembers.list)), make([]string, len(q.channelMembers.list)), make([][]byte, len(q.channelMembers.list))
	for i, m := range q.channelMembers.list {
		communities[i], hs[i], pubkeys[i] = m.Community, m.H, bytesOf(m.PubKey)
	}
	b.Queue(sqlChannelMembers, communities, hs, pubkeys).
		Query(ordinals(func(n int) { st.ChannelMembers[q.channelMembers.list[n]] = true }))
}

// queueModeration asks what moderators refuse, and whose hosts requests to vanish name.
func (q *question) queueModeration(b *pgx.Batch, st *policy.State) {
	communities, kinds := make([]int64, len(q.kinds.list)), make([]int32, len(q.kinds.list))
	for i, k := range q.kinds.list {
		communities[i], kinds[i] = k.Community, int32(k.Kind)
	}
	b.Queue(sqlRefusedKinds, communities, kinds).Query(ordinals(func(n int) { st.RefusedKinds[q.kinds.list[n]] = true }))
	communities, pubkeys := memberColumns(q.parties.list)
	b.Queue(sqlBannedPubKeys, communities, pubkeys).Query(ordinals(func(n int) { st.Banned[q.parties.list[n]] = true }))
	b.Queue(sqlTimedOut, communities, pubkeys).Query(func(rows pgx.Rows) error {
		var n, until int64
		_, err := pgx.ForEachRow(rows, []any{&n, &until}, func() error {
			st.TimedOut[q.parties.list[n-1]] = until
			return nil
		})
		return err
	})
	if len(q.hosts.list) == 0 {
		return
	}
	b.Queue(sqlHosts, q.hosts.list).Query(func(rows pgx.Rows) error {
		var host string
		var community int64
		_, err := pgx.ForEachRow(rows, []any{&host, &community}, func() error {
			st.Hosts[host] = community
			return nil
		})
		return err
	})
}

// queueRemoved asks which candidates moderators have removed, or their owners have vanished with.
func (q *question) queueRemoved(b *pgx.Batch, st *policy.State) {
	communities, ids := make([]int64, len(q.all)), make([][]byte, len(q.all))
	var owned []*policy.Candidate
	var owners []policy.MemberKey
	var created []int64
	for i, c := range q.all {
		communities[i], ids[i] = c.Community, c.Event.ID[:]
		for _, o := range c.Owners() {
			owned = append(owned, c)
			owners = append(owners, policy.MemberKey{Community: c.Community, PubKey: o})
			created = append(created, c.Event.CreatedAt)
		}
	}
	b.Queue(sqlBannedEvents, communities, ids).Query(ordinals(func(n int) { st.BannedEvents[q.all[n].Key()] = true }))
	communities, pubkeys := memberColumns(owners)
	b.Queue(sqlVanished, communities, pubkeys, created).Query(ordinals(func(n int) { st.Vanished[owned[n].Key()] = true }))
}

func memberColumns(members []policy.MemberKey) (communities []int64, pubkeys [][]byte) {
	communities, pubkeys = make([]int64, len(members)), make([][]byte, len(members))
	for i, m := range members {
		communities[i], pubkeys[i] = m.Community, bytesOf(m.PubKey)
	}
	return communities, pubkeys
}

func (q *question) queueEvents(b *pgx.Batch, st *policy.State) {
	if len(q.deletable) > 0 {
		var keys []policy.EventKey
		var communities []int64
		var ids, pubkeys [][]byte
		for _, c := range q.deletable {
			for _, deleter := range c.Deleters() {
				keys, communities = append(keys, c.Key()), append(communities, c.Community)
				ids, pubkeys = append(ids, c.Event.ID[:]), append(pubkeys, bytesOf(deleter))
			}
		}
		b.Queue(sqlTombstones, communities, ids, pubkeys).Query(ordinals(func(n int) { st.Deleted[keys[n]] = true }))
	}
	if n := len(q.addressed); n > 0 {
		a := newAddressColumns(n)
		created := make([]int64, n)
		for i, c := range q.addressed {
			a.add(addressOf(c.Community, c.Event))
			created[i] = c.Event.CreatedAt
		}
		b.Queue(sqlAddressTombstones, a.communities, a.kinds, a.pubkeys, a.ds, created).
			Query(ordinals(func(n int) { st.Deleted[q.addressed[n].Key()] = true }))
	}
	if n := len(q.done); n > 0 {
		communities, ids := make([]int64, n), make([][]byte, n)
		for i, c := range q.done {
			communities[i], ids[i] = c.Community, c.Event.ID[:]
		}
		b.Queue(sqlProcessed, communities, ids).
			Query(ordinals(func(n int) { st.Stored[q.done[n].Key()] = true }))
	}
}

// ReadState reads what Admit needs for events that are not stored. It is one round trip and takes no
// locks: all of it is from one snapshot, which may be older than a change that commits meanwhile.
func (s *Store) ReadState(ctx context.Context, candidates []*policy.Candidate) (*policy.State, error) {
	st := &policy.State{}
	b := &pgx.Batch{}
	b.Queue(sqlBeginRead)
	ask(candidates).queue(b, st, false)
	b.Queue(sqlClock).QueryRow(func(row pgx.Row) error { return row.Scan(&st.ReadAt) })
	b.Queue(sqlCommit)
	err := s.withConn(ctx, func(conn *pgx.Conn) error { return conn.SendBatch(ctx, b).Close() })
	if err != nil {
		return nil, fmt.Errorf("read access state: %w", err)
	}
	return st, nil
}

// ordinals calls found with the index, from 0, of each ordinal number that the query returns.
func ordinals(found func(i int)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var n int64
		_, err := pgx.ForEachRow(rows, []any{&n}, func() error {
			found(int(n - 1))
			return nil
		})
		return err
	}
}

// ordered is a set that remembers the order of addition. The zero value is empty.
type ordered[K comparable] struct {
	list []K
	seen map[K]bool
}

func (o *ordered[K]) add(k K) {
	if o.seen == nil {
		o.seen = make(map[K]bool)
	}
	if !o.seen[k] {
		o.seen[k] = true
		o.list = append(o.list, k)
	}
}

// bytesOf copies a key or id, for when the original is a loop variable.
func bytesOf[A ~[32]byte](a A) []byte { return a[:] }

// tagKey is the column form of a d tag as well: it must fit a B-tree.
func tagKey(value string) []byte { return postgres.TagKey(value) }
