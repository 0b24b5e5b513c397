package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// By addresses_pkey and events_time: when the stored versions of addresses were created, and in which channels they are.
const sqlSignedVersions = `
SELECT q.n, a.created_at, coalesce(e.channel_id, 0)
FROM unnest($1::bigint[], $2::integer[], $3::bytea[], $4::bytea[])
    WITH ORDINALITY AS q (community_id, kind, pubkey, d, n)
JOIN ingest.addresses a
    ON a.community_id = q.community_id AND a.kind = q.kind AND a.pubkey = q.pubkey AND a.d = q.d
LEFT JOIN LATERAL (
    SELECT e.channel_id FROM ingest.events e
    WHERE e.community_id = a.community_id AND e.created_at = a.created_at AND e.id = a.id OFFSET 0
) AS e ON true`

// draft is an event that the relay will sign because of a change.
type draft struct {
	kind    nostr.Kind
	tags    nostr.Tags
	content string
	// channel is the topic, empty for the global one. The draft has an h tag only if it is among its tags.
	channel string
	// once is set for an addressable event that is not to be replaced. The version that a deleted channel of the same id
	// has left is.
	once bool
}

// protected is the tag of an event that only its author may publish (NIP-70).
var protected = nostr.Tag{"-"}

// draft has the relay sign an event in this transaction. Without a key it does nothing.
func (x *change) draft(d draft) {
	if x.key != nil {
		x.drafts = append(x.drafts, d)
	}
}

// sign makes events of the drafts and adds them to the transaction as entries that are accepted. created_at is the
// database's time, and for an event with an address later than that of the version it replaces. An event that would
// be the same as a stored one, because the same happened twice in a second, is from the next second. If there are more
// than room bytes to sign, which are reserved for it, the error is a RefusedError.
func (x *change) sign(ctx context.Context, traceparent string, room int) error {
	if x.roster {
		if err := x.rosterChanged(ctx); err != nil {
			return err
		}
	}
	if err := x.draftLeft(ctx, room); err != nil {
		return err
	}
	if len(x.drafts) == 0 {
		return nil
	}
	now := x.begunAt / 1e6
	previous, err := x.previous(ctx)
	if err != nil {
		return err
	}
	size := 0
	for i, d := range x.drafts {
		e := &entry{Candidate: &policy.Candidate{Channel: d.channel}}
		e.Community, e.Traceparent, e.Principal = x.community, traceparent, []nostr.PubKey{x.key.PubKey()}
		e.channel = x.state.Channels[e.ChannelKey()]
		if d.once && previous[i].createdAt > 0 && previous[i].channel == e.channel.ID {
			continue
		}
		e.followUp = true
		e.Event = &nostr.Event{Kind: d.kind, Tags: d.tags, Content: d.content, CreatedAt: max(now, previous[i].createdAt+1)}
		if e.Event.Kind.IsRegular() {
			if err := x.makeNew(ctx, e.Event); err != nil {
				return err
			}
		}
		if err := e.Event.Sign(x.key); err != nil {
			return err
		}
		e.Raw = e.Event.AppendJSON(nil)
		if size += len(e.Raw) + policy.EnvelopeOverhead; size > room {
			return &RefusedError{policy.TooMuchFollows}
		}
		x.entries = append(x.entries, e)
	}
	x.drafts = nil
	return nil
}

// signedVersion is a stored version of an event that the relay has signed; zero if there is none.
type signedVersion struct{ createdAt, channel int64 }

// previous returns the versions that the drafts would replace.
func (x *change) previous(ctx context.Context) ([]signedVersion, error) {
	list := make([]signedVersion, len(x.drafts))
	a := newAddressColumns(len(x.drafts))
	for _, d := range x.drafts {
		at := policy.Coordinate{Kind: d.kind} // no row has a kind without addresses
		if d.kind.IsAddressable() {
			at.D, _ = d.tags.First("d")
		}
		a.add(addressAt(x.community, x.key.PubKey(), at))
	}
	rows, err := x.conn.Query(ctx, sqlSignedVersions, a.communities, a.kinds, a.pubkeys, a.ds)
	if err != nil {
		return nil, fmt.Errorf("read versions of relay-signed events: %w", err)
	}
	var n int64
	var v signedVersion
	if _, err := pgx.ForEachRow(rows, []any{&n, &v.createdAt, &v.channel}, func() error {
		list[n-1] = v
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read versions of relay-signed events: %w", err)
	}
	return list, nil
}

// makeNew moves created_at on until the event is not stored yet, and not among what is signed already.
func (x *change) makeNew(ctx context.Context, ev *nostr.Event) error {
	ev.PubKey = x.key.PubKey()
	for {
		id := ev.ComputeID()
		stored := false
		for _, e := range x.entries {
			stored = stored || (e.Community == x.community && e.Event.ID == id)
		}
		rows, err := x.conn.Query(ctx, sqlStoredIDs, []int64{x.community}, [][]byte{id[:]})
		if err == nil {
			err = ordinals(func(int) { stored = true })(rows)
		}
		if err != nil {
			return fmt.Errorf("look for a relay-signed event: %w", err)
		}
		if !stored {
			return nil
		}
		ev.CreatedAt++
	}
}
