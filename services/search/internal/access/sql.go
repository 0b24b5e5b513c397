package access

import "github.com/apiary-relay/apiary/pkg/nostr"

// The pieces of SQL that every statement on events is built from. Parameters are written @name; package
// plan turns them into $n. Each piece is a constant: nothing that a client sends is ever part of a text.
const (
	// ReaderCTE makes the one-row relation reader, or no row when there is no such community: whether the
	// reader is admitted at all, the keys that count (in a closed community only those of members), and
	// the same keys as values of p tags. Parameters: @community, @keys.
	//
	// Index: communities_pkey, community_members_pkey.
	ReaderCTE = `WITH reader AS MATERIALIZED (
    SELECT c.access = 'open' OR cardinality(k.keys) > 0 AS admitted, k.keys,
        ARRAY(SELECT convert_to(encode(key, 'hex'), 'UTF8') FROM unnest(k.keys) AS key) AS parties
    FROM ingest.communities c
    CROSS JOIN LATERAL (
        SELECT CASE WHEN c.access = 'open' THEN @keys::bytea[]
            ELSE ARRAY(SELECT m.pubkey FROM ingest.community_members m
                WHERE m.community_id = c.id AND m.pubkey = ANY (@keys::bytea[])) END
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

	// Party holds for an event e that is not private between its parties, or whose author or recipient
	// (p tag) the reader is.
	//
	// Index: event_tags_value.
	Party = `(e.kind NOT IN (4, 1059) OR e.pubkey = ANY ((SELECT keys FROM reader)::bytea[]) OR EXISTS (
        SELECT FROM ingest.event_tags p
        WHERE p.community_id = @community AND p.name = 'p' AND p.value = ANY ((SELECT parties FROM reader)::bytea[])
            AND p.created_at = e.created_at AND p.id = e.id OFFSET 0))`
)

// KindDirectMessage is the encrypted direct message of NIP-04.
const KindDirectMessage nostr.Kind = 4

// PartyOnly reports whether events of the kind are shown only to their author and their recipients:
// gift wraps (NIP-59) and direct messages (NIP-04). It is what Party says in SQL.
func PartyOnly(k nostr.Kind) bool { return k == nostr.KindGiftWrap || k == KindDirectMessage }
