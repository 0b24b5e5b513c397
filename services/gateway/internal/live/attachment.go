package live

import (
	"sync"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/hub"
)

// Target is a subscription's side of an attachment. No method may block.
type Target interface {
	// Attached says that everything committed from now on will be delivered. Called once.
	Attached()
	// Deliver takes events; calls for one attachment do not overlap.
	Deliver(run *hub.Run)
	// Lost says that the attachment has ended: fault.Invalid when the node refused it, fault.Blocked when no key may
	// read the channel any more, otherwise because it could not be kept complete. Nothing is delivered afterwards.
	Lost(reason fault.Reason)
}

// Spec is what to attach: the filters of one subscription that concern one topic.
type Spec struct {
	// Community and Channel are the topic; an empty channel is the global one.
	Community int64
	Channel   string
	// Filters are OR-ed; not changed any more.
	Filters []*commonv1.Filter
	// Principal is who receives; not changed any more.
	Principal *commonv1.Principal
	// Target takes what comes.
	Target Target
}

// Attachment is a Spec on its way through the cluster.
type Attachment struct {
	spec      Spec
	partition uint32
	// Set by the loop before there is a seat, and not changed any more.
	topic  *topic
	number uint64 // tells where it goes when the topic is spread

	// Guarded by mu.
	mu   sync.Mutex
	last cursor // everything up to here has been delivered or is not for us
	gone bool   // detached: nothing is delivered any more

	// Owned by the loop.
	known    bool      // in the loop's books
	served   bool      // the Target was told Attached
	cur      *seat     // serves, or is asked to
	next     *seat     // will take over from cur
	trouble  time.Time // since when it is not attached; zero while it is
	holdOff  time.Time // not to be placed before
	avoid    *link     // not to be placed there until holdOff
	attempts int       // refusals for overload in a row
}

// seat is an attachment's handle on one link. Which seats exist is the loop's business; the fields
// below mu's comment are guarded by the attachment's mu.
type seat struct {
	att    *Attachment
	link   *link
	handle uint64

	// Guarded by att.mu.
	resumed  bool   // Subscribe had resume_after
	attached bool   // the node has answered
	answered uint64 // the link's item count at that answer
}

// deliver passes on those events of a run that have not been delivered before, and returns how many they are. at are
// their positions in the stream, ascending.
func (a *Attachment) deliver(stream int, at []position, run *hub.Run) (fresh int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return 0
	}
	known := 0
	for known < len(at) && at[known].compare(a.last[stream]) <= 0 {
		known++
	}
	if known == len(at) {
		return 0
	}
	if known > 0 {
		run = hub.NewRun(run.Events()[known:]...)
	}
	a.last[stream] = at[len(at)-1]
	a.spec.Target.Deliver(run)
	return len(at) - known
}

// confirm notes the node's answer to Subscribe.
func (s *seat) confirm(from cursor, items uint64) {
	a := s.att
	a.mu.Lock()
	defer a.mu.Unlock()
	s.attached, s.answered = true, items
	if !s.resumed {
		a.last.raise(from) // a new handle starts there; a resumed one is told what it missed first
	}
}

// settle takes over what the link knows about the attachment's partition, if it holds for this seat, so
// that it is resumed from there.
func (s *seat) settle() {
	done, watermark := s.link.progress(s.att.partition)
	a := s.att
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.attached && (!s.resumed || watermark > s.answered) {
		a.last.raise(done)
	}
}

func (a *Attachment) end() {
	a.mu.Lock()
	a.gone = true
	a.mu.Unlock()
}
