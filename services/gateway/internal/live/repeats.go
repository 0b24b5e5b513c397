package live

import (
	"sync"

	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
)

// rememberedEvents is how many events of a partition are remembered: what may come again comes within
// seconds, when a replica of ingest has died.
const rememberedEvents = 1024

// eventKey names an event; an id is one event's only inside a community. A reminder comes once more when it is due, which is
// no repeat.
type eventKey struct {
	community int64
	id        [32]byte
	dueAt     int64
}

// repeats remembers where each partition's last events were first delivered, by whatever node. A stream
// may hold an event twice: an ephemeral one whose replica died before it answered was sent again, and the
// outbox may publish after the stream has forgotten the message id. Each node drops the second copy of
// what it has seen, but a node that took over in between has not seen the first one. Safe for concurrent
// use.
type repeats []partitionRepeats

type partitionRepeats struct {
	mu    sync.Mutex
	first map[eventKey]position
	ring  []eventKey // in order of arrival; full once it has rememberedEvents
	next  int        // the slot to overwrite when full
}

func newRepeats(partitions uint32) repeats { return make(repeats, partitions) }

// isRepeat notes that an event is delivered at p, and reports whether it is a copy of an earlier one. The
// earliest copy never is, however late it comes: somebody who is brought up to date gets just that one.
func (r repeats) isRepeat(partition uint32, h *commonv1.Header, p position) bool {
	if partition >= uint32(len(r)) || len(h.GetId()) != len(eventKey{}.id) {
		return false
	}
	return r[partition].isRepeat(eventKey{community: h.GetCommunity(), id: [32]byte(h.GetId()), dueAt: h.GetDueAt()}, p)
}

func (r *partitionRepeats) isRepeat(key eventKey, p position) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, known := r.first[key]
	switch {
	case known && p.compare(first) > 0:
		return true
	case known:
		r.first[key] = p
		return false
	case r.first == nil:
		r.first = make(map[eventKey]position)
	}
	if len(r.ring) < rememberedEvents {
		r.ring = append(r.ring, key)
	} else {
		delete(r.first, r.ring[r.next])
		r.ring[r.next] = key
		r.next = (r.next + 1) % len(r.ring)
	}
	r.first[key] = p
	return false
}
