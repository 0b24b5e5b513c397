package store

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
)

// Bounds of a list of moderators: entries, bytes of all of them, and bytes of what a reporter wrote.
const (
	MaxEntries    = 10_000
	maxEntryBytes = 4 << 20
	maxReason     = 512
)

// Entry is one line of a list.
type Entry struct {
	// Value is a key or id in hex, a kind in decimal, or a network in CIDR form.
	Value string
	// Reason is what the moderator, or the reporter, gave.
	Reason string
}

// List is a list of NIP-86.
type List uint8

// The lists that are tables.
const (
	BannedPubKeys List = iota
	Members
	BannedEvents
	AllowedKinds
	BlockedNetworks
)

// lists reads them, newest first. Parameters: community, most entries.
//
// Index: the first column of each table's primary key; what a community has decided is sorted.
var lists = [...]string{
	BannedPubKeys: `
SELECT encode(pubkey, 'hex'), reason FROM ingest.banned_pubkeys
WHERE community_id = $1 AND (expires_at IS NULL OR expires_at > now()) ORDER BY decided_at DESC, pubkey LIMIT $2`,
	Members: `
SELECT encode(pubkey, 'hex'), '' FROM ingest.community_members WHERE community_id = $1 ORDER BY added_at DESC, pubkey LIMIT $2`,
	BannedEvents: `
SELECT encode(id, 'hex'), reason FROM ingest.banned_events WHERE community_id = $1 ORDER BY decided_at DESC, id LIMIT $2`,
	AllowedKinds: `
SELECT kind::text, '' FROM ingest.allowed_kinds WHERE community_id = $1 ORDER BY kind LIMIT $2`,
	BlockedNetworks: `
SELECT network::text, reason FROM ingest.blocked_networks WHERE community_id = $1 ORDER BY decided_at DESC, network LIMIT $2`,
}

// moderates tells whether $2 is an owner or admin of a community, and not banned.
//
// Index: community_members_pkey, banned_pubkeys_pkey, agents_pkey, communities_pkey.
const moderates = `
SELECT EXISTS (SELECT FROM ingest.community_members WHERE community_id = $1 AND pubkey = $2 AND role IN ('owner', 'admin'))
    AND NOT EXISTS (SELECT FROM ingest.barred WHERE community_id = $1 AND pubkey = $2)
    AND EXISTS (SELECT FROM ingest.communities WHERE id = $1 AND archived_at IS NULL)`

// decided returns those of $2 that a moderator has looked at since the latest report of each, $3: what is reported later may be
// about what it was edited to since. Of one that is gone for good, no report is open.
//
// Index: decided_reports_pkey, banned_events_pkey.
const decided = `
SELECT q.id FROM unnest($2::bytea[], $3::bigint[]) AS q (id, reported_at)
WHERE EXISTS (SELECT FROM ingest.decided_reports d
        WHERE d.community_id = $1 AND d.target_id = q.id AND extract(epoch FROM d.decided_at) >= q.reported_at OFFSET 0)
    OR EXISTS (SELECT FROM ingest.banned_events b WHERE b.community_id = $1 AND b.id = q.id OFFSET 0)`

// Moderation returns a list, newest first (kinds ascending), as far as it fits into the bounds. The error
// is Restricted unless actor moderates the community.
func (s *Store) Moderation(ctx context.Context, community tenant.ID, actor nostr.PubKey, list List) (entries []Entry, err error) {
	err = s.asModerator(ctx, community, actor, func(ctx context.Context, tx pgx.Tx) error {
		entries = nil
		rows, err := tx.Query(ctx, lists[list], int64(community), MaxEntries)
		if err != nil {
			return fmt.Errorf("read list: %w", err)
		}
		entries, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
		if err != nil {
			return fmt.Errorf("read list: %w", err)
		}
		entries = fitting(entries)
		return nil
	})
	return entries, err
}

// Reported returns the events that reports (NIP-56) name and on which nobody has decided, the latest report
// first; each once, with what its latest reporter gave. Reports that have expired by now, in Unix seconds, are none; bytes bounds
// what is read. The error is Restricted unless actor moderates the community.
func (s *Store) Reported(ctx context.Context, community tenant.ID, actor nostr.PubKey, now, bytes int64) (entries []Entry, err error) {
	err = s.asModerator(ctx, community, actor, func(ctx context.Context, tx pgx.Tx) error {
		entries = nil
		reported := make(map[nostr.ID]string)
		var order [][]byte
		var latest []int64
		err := readReports(ctx, tx, community, now, bytes, func(_ []byte, e *nostr.Event) {
			for t := range e.Tags.All("e") {
				id, err := nostr.ParseID(t.Value())
				if _, again := reported[id]; again || err != nil || len(order) == MaxEntries {
					continue
				}
				reported[id] = reasonOf(t, e.Content)
				order, latest = append(order, id[:]), append(latest, e.CreatedAt)
			}
		})
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, decided, int64(community), order, latest)
		if err != nil {
			return fmt.Errorf("find decisions: %w", err)
		}
		var done []byte
		if _, err := pgx.ForEachRow(rows, []any{&done}, func() error {
			delete(reported, nostr.ID(done))
			return nil
		}); err != nil {
			return fmt.Errorf("read decisions: %w", err)
		}
		for _, b := range order {
			if reason, open := reported[nostr.ID(b)]; open {
				entries = append(entries, Entry{nostr.ID(b).String(), reason})
			}
		}
		entries = fitting(entries)
		return nil
	})
	return entries, err
}

// asModerator runs fn in one snapshot, if actor moderates the community in it.
func (s *Store) asModerator(ctx context.Context, community tenant.ID, actor nostr.PubKey, fn func(context.Context, pgx.Tx) error) error {
	return s.readBulk(ctx, func(ctx context.Context, conn *pgx.Conn, _ session) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			var ok bool
			if err := tx.QueryRow(ctx, moderates, int64(community), actor[:]).Scan(&ok); err != nil {
				return fmt.Errorf("read role: %w", err)
			}
			if !ok {
				return fault.New(fault.Restricted, "not an owner or admin of the community")
			}
			return fn(ctx, tx)
		})
	})
}

// reasonOf joins the report's type, the third element of the tag, with what its author wrote.
func reasonOf(t nostr.Tag, content string) string {
	reason := content
	if len(t) > 2 && t[2] != "" {
		reason = strings.TrimSuffix(t[2]+": "+content, ": ")
	}
	return cut(reason, maxReason)
}

// cut returns the beginning of text, at most limit bytes, without half a character.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// fitting returns the first entries that are at most maxEntryBytes together.
func fitting(entries []Entry) []Entry {
	size := 0
	for i, e := range entries {
		if size += len(e.Value) + len(e.Reason); size > maxEntryBytes {
			return entries[:i]
		}
	}
	return entries
}
