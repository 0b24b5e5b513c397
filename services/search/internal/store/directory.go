package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
	"github.com/apiary-relay/apiary/services/search/internal/access"
)

// Community is a community and its hosts.
type Community struct {
	// ID is its surrogate key.
	ID tenant.ID
	// Name, Description and Icon are shown to clients (NIP-11).
	Name, Description, Icon string
	// Closed is true when only members may read and write.
	Closed bool
	// Version is the community's access version.
	Version uint64
	// Hosts are all its authorities, the primary one first, then by name.
	Hosts []string
	// MinPoW is the least NIP-13 difficulty of an event in bits.
	MinPoW uint32
	// Blocked are the networks (CIDR) whose clients are refused, at most maxBlocked.
	Blocked []string
	// Owner is the owner who has been it longest, empty if there is none.
	Owner []byte
	// UUID is its name for clients.
	UUID string
	// Archived is set when it is served to nobody.
	Archived bool
	// Standby is set when a replica has answered, which may be behind.
	Standby bool
}

// maxBlocked is how many blocked networks a community's description holds, the newest.
const maxBlocked = 1024

// communityByHost finds the community of the first of $1 that is registered. A host that is kept from everybody, because
// its community was deleted, is registered and has none.
//
// Index: community_hosts_pkey, communities_pkey, community_hosts_community, blocked_networks_pkey,
// community_members_pkey.
const communityByHost = `
SELECT c.id, c.name, c.description, c.icon, c.access = 'closed', c.acl_version,
    ARRAY(SELECT a.host FROM ingest.community_hosts a WHERE a.community_id = c.id ORDER BY a.is_primary DESC, a.host),
    c.min_pow,
    ARRAY(SELECT b.network::text FROM ingest.blocked_networks b WHERE b.community_id = c.id ORDER BY b.decided_at DESC, b.network LIMIT $2),
    (SELECT m.pubkey FROM ingest.community_members m WHERE m.community_id = c.id AND m.role = 'owner' ORDER BY m.added_at, m.pubkey LIMIT 1),
    c.uuid::text, c.archived_at IS NOT NULL, pg_catalog.pg_is_in_recovery()
FROM (
    SELECT h.community_id FROM unnest($1::text[]) WITH ORDINALITY AS w (host, rank)
    JOIN ingest.community_hosts h ON h.host = w.host
    ORDER BY w.rank LIMIT 1
) AS h
JOIN ingest.communities c ON c.id = h.community_id`

// CommunityByHost returns the community of the first of hosts (normalised, in order of preference) that is
// registered, and whether there is one.
func (s *Store) CommunityByHost(ctx context.Context, hosts []string) (Community, bool, error) {
	var c Community
	found := false
	err := s.read(ctx, func(ctx context.Context, conn *pgx.Conn, _ session) error {
		c = Community{}
		err := conn.QueryRow(ctx, communityByHost, hosts, maxBlocked).
			Scan(&c.ID, &c.Name, &c.Description, &c.Icon, &c.Closed, &c.Version, &c.Hosts, &c.MinPoW, &c.Blocked, &c.Owner,
				&c.UUID, &c.Archived, &c.Standby)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find community by host: %w", err)
		}
		found = true
		return nil
	})
	return c, found, err
}

// topicAccess reads everything that decides who of $3 may read a topic; one statement is one snapshot.
//
// The time is that of now(), by which the views decide too. Of what ends, the first counts for each key.
//
// Index: communities_pkey, channels_h_key, community_members_pkey, channel_members_pkey,
// banned_pubkeys_pkey, agents_pkey.
const topicAccess = `
SELECT pg_catalog.pg_is_in_recovery(), (extract(epoch FROM now()) * 1000000)::bigint, c.id IS NOT NULL AND c.archived_at IS NULL, coalesce(c.access = 'open', false), coalesce(c.acl_version, 0),
    ARRAY(SELECT q.key FROM unnest($3::bytea[]) AS q (key)
        WHERE c.access <> 'open' AND EXISTS (SELECT FROM ingest.admitted m
            WHERE m.community_id = c.id AND m.pubkey = q.key OFFSET 0)),
    ARRAY(SELECT q.key FROM unnest($3::bytea[]) AS q (key)
        WHERE EXISTS (SELECT FROM ingest.barred b WHERE b.community_id = c.id AND b.pubkey = q.key OFFSET 0)),
    ARRAY(SELECT q.key FROM unnest($3::bytea[]) AS q (key)
        WHERE EXISTS (SELECT FROM ingest.community_members m
            WHERE m.community_id = c.id AND m.role IN ('owner', 'admin') AND m.pubkey = q.key OFFSET 0)),
    ARRAY(SELECT a.pubkey || a.owner FROM ingest.agents a
        WHERE $2 = '' AND a.community_id = c.id AND a.pubkey = ANY ($3::bytea[])),
    ch.id IS NOT NULL, coalesce(ch.visibility = 'open', false), coalesce(ch.acl_version, 0),
    ARRAY(SELECT q.key FROM unnest($3::bytea[]) AS q (key)
        WHERE ch.visibility <> 'open' AND EXISTS (SELECT FROM ingest.channel_members m
            WHERE m.community_id = c.id AND m.channel_id = ch.id AND m.pubkey = q.key OFFSET 0)),
    ARRAY(SELECT e.pubkey || int8send((extract(epoch FROM min(e.at)) * 1000000)::bigint)
        FROM (
            SELECT a.pubkey, a.until FROM ingest.agents a WHERE a.community_id = c.id AND a.pubkey = ANY ($3::bytea[])
            UNION ALL
            SELECT b.pubkey, b.expires_at FROM ingest.banned_pubkeys b WHERE b.community_id = c.id AND b.pubkey = ANY ($3::bytea[])
            UNION ALL
            SELECT a.pubkey, b.expires_at FROM ingest.agents a
            CROSS JOIN LATERAL (SELECT o.expires_at FROM ingest.banned_pubkeys o
                WHERE o.community_id = c.id AND o.pubkey = a.owner OFFSET 0) AS b
            WHERE a.community_id = c.id AND a.pubkey = ANY ($3::bytea[])
        ) AS e (pubkey, at)
        WHERE e.at > now() GROUP BY e.pubkey)
FROM (SELECT) AS one
LEFT JOIN ingest.communities c ON c.id = $1
LEFT JOIN ingest.channels ch ON ch.community_id = c.id AND ch.h = $2`

// TopicAccess reads the access state of a topic (the channel with this h value, the global topic if it is
// empty) as far as it matters for keys.
func (s *Store) TopicAccess(ctx context.Context, community tenant.ID, h string, keys []nostr.PubKey) (access.Topic, error) {
	list := make([][]byte, len(keys))
	for i := range keys {
		list[i] = keys[i][:]
	}
	var t access.Topic
	err := s.read(ctx, func(ctx context.Context, conn *pgx.Conn, _ session) error {
		t = access.Topic{}
		var ch access.Channel
		var hasChannel bool
		var members, banned, moderators, agents, channelMembers, ends [][]byte
		err := conn.QueryRow(ctx, topicAccess, int64(community), h, list).Scan(&t.Standby, &t.Time, &t.Exists, &t.Open,
			&t.CommunityVersion, &members, &banned, &moderators, &agents, &hasChannel, &ch.Open, &ch.Version, &channelMembers, &ends)
		if err != nil {
			return fmt.Errorf("read access of topic: %w", err)
		}
		t.Members, t.Banned, t.Moderators = pubkeys(members), pubkeys(banned), pubkeys(moderators)
		for _, a := range agents { // two keys of 32 bytes
			t.Agents = append(t.Agents, access.Agent{Key: nostr.PubKey(a[:32]), Owner: nostr.PubKey(a[32:])})
		}
		for _, e := range ends { // a key of 32 bytes and a time of 8
			t.Ends = append(t.Ends, access.End{Key: nostr.PubKey(e[:32]), At: int64(binary.BigEndian.Uint64(e[32:]))})
		}
		if hasChannel {
			ch.Members = pubkeys(channelMembers)
			t.Channel = &ch
		}
		return nil
	})
	return t, err
}

// pubkeys converts keys that the schema keeps at 32 bytes.
func pubkeys(list [][]byte) []nostr.PubKey {
	keys := make([]nostr.PubKey, len(list))
	for i, b := range list {
		copy(keys[i][:], b)
	}
	return keys
}
