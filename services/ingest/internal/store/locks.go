package store

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Classes of advisory lock keys, the top byte of the key. Keys with a zero top byte are left to others:
// migrations and functions of the schema.
const (
	classCommunity = 1
	classChannel   = 2
	classOwner     = 3
	classBits      = 56
)

// communityLock is the key that holds a community's members, access and deletions.
func communityLock(community int64) int64 {
	return classCommunity<<classBits | community&(1<<classBits-1)
}

// channelLock is the key that holds a channel's members, visibility and existence. It comes from the h
// value and not from the surrogate key, so that a channel can be locked before it is looked up, and when it
// does not exist. Two channels may share a key, which costs waiting only. It is a hash that Postgres has too, for
// sqlLockWithTargets.
func channelLock(k policy.ChannelKey) int64 {
	var text [8 + nostr.MaxChannelID]byte
	binary.BigEndian.PutUint64(text[:8], uint64(k.Community))
	sum := sha256.Sum256(append(text[:8], k.H...))
	return classChannel<<classBits | int64(binary.BigEndian.Uint64(sum[:8])>>(64-classBits))
}

// ownerLock is the key that holds how many communities somebody owns. Two keys may share it, which costs waiting only.
func ownerLock(owner nostr.PubKey) int64 {
	sum := sha256.Sum256(owner[:])
	return classOwner<<classBits | int64(binary.BigEndian.Uint64(sum[:8])>>(64-classBits))
}

// lockSet collects the locks of a transaction; exclusive wins over shared.
type lockSet map[int64]bool

func (l lockSet) shared(key int64) {
	if _, ok := l[key]; !ok {
		l[key] = false
	}
}

func (l lockSet) exclusive(key int64) { l[key] = true }

// queue takes all locks in one statement, in ascending order.
func (l lockSet) queue(b *pgx.Batch) {
	keys, exclusive := l.columns()
	b.Queue(sqlLock, keys, exclusive)
}

// columns are the locks in ascending order, as the arrays of a statement.
func (l lockSet) columns() (keys []int64, exclusive []bool) {
	type lock struct {
		key       int64
		exclusive bool
	}
	sorted := make([]lock, 0, len(l))
	for key, exclusive := range l {
		sorted = append(sorted, lock{key, exclusive})
	}
	slices.SortFunc(sorted, func(a, b lock) int { return cmp.Compare(a.key, b.key) })
	keys, exclusive = make([]int64, len(sorted)), make([]bool, len(sorted))
	for i, s := range sorted {
		keys[i], exclusive[i] = s.key, s.exclusive
	}
	return keys, exclusive
}

// sqlLock takes the locks in the order of the arrays: a function scan returns its rows in order, and
// count() looks at them one after the other.
const sqlLock = `
SELECT count(CASE WHEN exclusive THEN pg_advisory_xact_lock(key)::text ELSE pg_advisory_xact_lock_shared(key)::text END)
FROM unnest($1::bigint[], $2::boolean[]) AS l (key, exclusive)`
