package store

import (
	"bytes"
	"cmp"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// address is the key of ingest.addresses. d is the TagKey of the d tag's value.
type address struct {
	community int64
	kind      nostr.Kind
	pubkey    nostr.PubKey
	d         string
}

func addressOf(community int64, ev *nostr.Event) address {
	at, _ := policy.CoordinateOf(ev)
	return addressAt(community, ev.PubKey, at)
}

func addressAt(community int64, author nostr.PubKey, at policy.Coordinate) address {
	return address{community, at.Kind, author, string(tagKey(at.D))}
}

func compareAddresses(a, b address) int {
	return cmp.Or(
		cmp.Compare(a.community, b.community),
		cmp.Compare(a.kind, b.kind),
		bytes.Compare(a.pubkey[:], b.pubkey[:]),
		cmp.Compare(a.d, b.d),
	)
}

// addressColumns are addresses as the arrays of a statement.
type addressColumns struct {
	communities []int64
	kinds       []int32
	pubkeys     [][]byte
	ds          [][]byte
}

func newAddressColumns(n int) *addressColumns {
	return &addressColumns{make([]int64, 0, n), make([]int32, 0, n), make([][]byte, 0, n), make([][]byte, 0, n)}
}

func (c *addressColumns) add(a address) {
	c.communities = append(c.communities, a.community)
	c.kinds = append(c.kinds, int32(a.kind))
	c.pubkeys = append(c.pubkeys, bytesOf(a.pubkey))
	c.ds = append(c.ds, []byte(a.d))
}

// newer reports whether version (createdAt, id) wins over the other: the newer one, on a tie the one with
// the lower id (NIP-01).
func newer(createdAt int64, id nostr.ID, otherCreatedAt int64, otherID nostr.ID) bool {
	if createdAt != otherCreatedAt {
		return createdAt > otherCreatedAt
	}
	return bytes.Compare(id[:], otherID[:]) < 0
}
