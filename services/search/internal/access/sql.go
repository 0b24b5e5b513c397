package access

import "github.com/apiary-relay/apiary/pkg/nostr"

// The pieces of SQL that every statement on events is built from. Parameters are written @name; package
// plan turns them into $n. Each piece is a constant: nothing that a client sends is ever part of a text.
const (
	// ReaderCTE makes the one-row relation reader, or no row when there is no such community: the keys that
	// count (none that is banned, in a closed community only those of members), whether the reader is
	// admitted at all, whether it is an owner or admin, and whether the community has keys that vanished. An
	// open community admits nobody with nothing but banned keys. Parameters: @community, @keys.
	//
	// Index: communities_pkey, community_members_pkey, banned_pubkeys_pkey, vanished_pkey.
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
            WHERE NOT EXISTS (SELECT FROM ingest.banned_pubkeys b WHERE b.community_id = c.id AND b.pubkey = q.key OFFSET 0)
                AND (c.access = 'open' OR EXISTS (
                    SELECT FROM ingest.community_members m WHERE m.community_id = c.id AND m.pubkey = q.key OFFSET 0))) OFFSET 0
    ) AS k (keys)
    WHERE c.id = @community)`

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

	// Party holds for an event e that is not private between its parties, or whose author or recipient
	// (p tag) the reader is, and for a report if the reader moderates. A gift wrap is withheld from a
	// recipient who asked to vanish since.
	//
	// Index: event_tags_value, vanished_pkey.
	Party = `(e.kind NOT IN (4, 1059, 1984) OR e.pubkey = ANY ((SELECT keys FROM reader)::bytea[])
        OR (e.kind = 1984 AND (SELECT moderates FROM reader))
        OR (e.kind <> 1984 AND EXISTS (
            SELECT FROM unnest((SELECT keys FROM reader)::bytea[]) AS q (key)
            WHERE EXISTS (
                SELECT FROM ingest.event_tags p
                WHERE p.community_id = @community AND p.name = 'p' AND p.value = convert_to(encode(q.key, 'hex'), 'UTF8')
                    AND p.created_at = e.created_at AND p.id = e.id OFFSET 0)
                AND (e.kind <> 1059 OR NOT EXISTS (
                    SELECT FROM ingest.vanished v
                    WHERE v.community_id = @community AND v.pubkey = q.key AND v.until >= e.created_at OFFSET 0)) OFFSET 0)))`
)

// KindDirectMessage is the encrypted direct message of NIP-04.
const KindDirectMessage nostr.Kind = 4

// KindReport is the report of NIP-56.
const KindReport nostr.Kind = 1984

// PartyOnly reports whether events of the kind are shown only to their parties. Those of gift wraps
// (NIP-59) and direct messages (NIP-04) are their author and their recipients, those of reports (NIP-56)
// their author and who moderates the community. It is what Party says in SQL.
func PartyOnly(k nostr.Kind) bool {
	return k == nostr.KindGiftWrap || k == KindDirectMessage || k == KindReport
}
