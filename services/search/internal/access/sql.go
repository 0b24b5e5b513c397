package access

import (
	"slices"
	"strconv"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr/kind"
)

// The pieces of SQL that every statement on events is built from. Parameters are written @name; package
// plan turns them into $n. Each piece is fixed when the process starts: nothing that a client sends is ever part of a text.
const (
	// ReaderCTE makes the one-row relation reader, or no row when there is no such community: the keys that
	// count (none that is banned, in a closed community only those of members and their agents), whether the reader is
	// admitted at all, whether it is an owner or admin, and whether the community has keys that vanished. An
	// open community admits nobody with nothing but banned keys. Parameters: @community, @keys.
	//
	// Index: communities_pkey, community_members_pkey, agents_pkey, banned_pubkeys_pkey, vanished_pkey.
	ReaderCTE = `WITH reader AS MATERIALIZED (
    SELECT k.keys,
        cardinality(k.keys) > 0 OR (c.access = 'open' AND cardinality(@keys::bytea[]) = 0) AS admitted,
        EXISTS (SELECT FROM unnest(k.keys) AS q (key)
            WHERE EXISTS (SELECT FROM ingest.community_members m
                WHERE m.community_id = c.id AND m.pubkey = q.key AND m.role IN ('owner', 'admin') OFFSET 0) OFFSET 0) AS moderates,
        EXISTS (SELECT FROM ingest.vanished v WHERE v.community_id = c.id OFFSET 0) AS misses
    FROM ingest.communities c
    CROSS JOIN LATERAL (
        SELECT ARRAY(SELECT q.key FROM unnest(@keys::bytea[]) AS q (key)
            WHERE NOT EXISTS (SELECT FROM ingest.barred b WHERE b.community_id = c.id AND b.pubkey = q.key OFFSET 0)
                AND (c.access = 'open' OR EXISTS (
                    SELECT FROM ingest.admitted m WHERE m.community_id = c.id AND m.pubkey = q.key OFFSET 0))) OFFSET 0
    ) AS k (keys)
    WHERE c.id = @community AND c.archived_at IS NULL)`

	// Admitted holds when the reader may read anything in the community.
	Admitted = `(SELECT admitted FROM reader)`

	// ReadableChannel holds for a row ch of ingest.channels that the reader may read.
	//
	// Index: channel_members_pkey.
	ReadableChannel = `(ch.visibility = 'open' OR EXISTS (
        SELECT FROM ingest.channel_members m
        WHERE m.community_id = @community AND m.channel_id = ch.id AND m.pubkey = ANY ((SELECT keys FROM reader)::bytea[]) OFFSET 0))`

	// ReadableEvent holds for an event e that the reader may read as far as its channel goes.
	//
	// Index: channels_pkey.
	ReadableEvent = `(e.channel_id IS NULL OR EXISTS (
        SELECT FROM ingest.channels ch
        WHERE ch.community_id = @community AND ch.id = e.channel_id AND ` + ReadableChannel + ` OFFSET 0))`

	// ReadableInChannels holds for an event e that is in one of @channels (h values) and readable there. A
	// channel that is hidden and one that does not exist make the same difference: none.
	//
	// Index: channels_pkey.
	ReadableInChannels = `EXISTS (
        SELECT FROM ingest.channels ch
        WHERE ch.community_id = @community AND ch.id = e.channel_id AND ch.h = ANY (@channels::text[])
            AND ` + ReadableChannel + ` OFFSET 0)`

	// Present holds for an event e whose author has not asked to vanish since (NIP-62).
	//
	// Index: vanished_pkey, in a community that has such keys.
	Present = `(NOT (SELECT misses FROM reader) OR NOT EXISTS (
        SELECT FROM ingest.vanished v
        WHERE v.community_id = @community AND v.pubkey = e.pubkey AND v.until >= e.created_at OFFSET 0))`
)

// Party holds for an event e whose kind is for everybody, or whose audience the reader is of: package kind says who
// that is, with the same meaning as kind.AudienceOf. Where an event's own tags do not tell, its mark does
// (kind.Mark). A gift wrap is withheld from a recipient who asked to vanish since.
//
// Index: event_tags_value, vanished_pkey.
var Party = `(e.kind <> ALL (` + kinds(kind.Parties, kind.Author, kind.Shared, kind.Owner, kind.Moderators) + `)
        OR (e.kind <> ALL (` + kinds(kind.Owner) + `) AND e.pubkey = ANY ((SELECT keys FROM reader)::bytea[]))
        OR (e.kind = ANY (` + kinds(kind.Moderators) + `) AND (SELECT moderates FROM reader))
        OR (e.kind = ANY (` + kinds(kind.Shared) + `) AND EXISTS (
            SELECT FROM ingest.event_tags s
            WHERE s.community_id = @community AND s.name = '` + kind.MarkName + `' AND s.value = '` + kind.MarkEverybody + `'
                AND s.created_at = e.created_at AND s.id = e.id OFFSET 0))
        OR (e.kind = ANY (` + kinds(kind.Parties, kind.Owner) + `) AND EXISTS (
            SELECT FROM unnest((SELECT keys FROM reader)::bytea[]) AS q (key)
            WHERE EXISTS (
                SELECT FROM ingest.event_tags p
                WHERE p.community_id = @community
                    AND p.name = CASE WHEN e.kind = ANY (` + kinds(kind.Owner) + `) THEN '` + kind.MarkName + `' ELSE 'p' END
                    AND p.value = convert_to(encode(q.key, 'hex'), 'UTF8')
                    AND p.created_at = e.created_at AND p.id = e.id OFFSET 0)
                AND (e.kind <> 1059 OR NOT EXISTS (
                    SELECT FROM ingest.vanished v
                    WHERE v.community_id = @community AND v.pubkey = q.key AND v.until >= e.created_at OFFSET 0)) OFFSET 0)))`

// kinds returns the kinds with these readers as an array of SQL.
func kinds(readers ...kind.Readers) string {
	var list []string
	for _, k := range kind.List(func(r kind.Rules) bool { return slices.Contains(readers, r.Readers) }) {
		list = append(list, strconv.Itoa(int(k)))
	}
	return "'{" + strings.Join(list, ",") + "}'::int[]"
}
