package store

import (
	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// By channels_h_key, event_ids_pkey and events_time, in channels that want references: which of them name an
// event of the channel that is for everybody there. Ids are spread evenly, so that few begin alike. $5 are the kinds that are not.
const sqlReferenced = `
SELECT q.n
FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bytea[]) WITH ORDINALITY AS q (community_id, h, low, high, n)
JOIN ingest.channels c ON c.community_id = q.community_id AND c.h = q.h AND c.previous_required
WHERE EXISTS (
    SELECT FROM ingest.event_ids i
    JOIN ingest.events e ON e.community_id = i.community_id AND e.created_at = i.created_at AND e.id = i.id
    WHERE i.community_id = q.community_id AND i.id BETWEEN q.low AND q.high AND e.channel_id = c.id
        AND e.kind <> ALL ($5::integer[]))`

// withheld are the kinds that are not for everybody who may read their channel.
var withheld = kind.List(func(r kind.Rules) bool { return r.Readers != kind.Everybody })

// queueReferences asks which earlier events of their channels candidates refer to (NIP-29).
func (q *question) queueReferences(b *pgx.Batch, st *policy.State) {
	var refs ordered[policy.ReferenceKey]
	for _, c := range q.all {
		if !c.IsMessage() {
			continue
		}
		list, _ := c.References()
		for _, r := range list {
			refs.add(policy.ReferenceKey{ChannelKey: c.ChannelKey(), Reference: r})
		}
	}
	if len(refs.list) == 0 {
		return
	}
	st.Referenced = make(map[policy.ReferenceKey]bool, len(refs.list))
	n := len(refs.list)
	communities, hs, lows, highs := make([]int64, n), make([]string, n), make([][]byte, n), make([][]byte, n)
	for i, r := range refs.list {
		communities[i], hs[i] = r.Community, r.H
		low, high := [32]byte{}, [32]byte{}
		for j := range high {
			high[j] = 0xff
		}
		copy(low[:], r.Reference[:])
		copy(high[:], r.Reference[:])
		lows[i], highs[i] = low[:], high[:]
	}
	b.Queue(sqlReferenced, communities, hs, lows, highs, withheld).
		Query(ordinals(func(i int) { st.Referenced[refs.list[i]] = true }))
}
