package session

import (
	"fmt"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

// exceeds answers a command that comes too soon after the others of its client, and reports whether it did. To
// the client a REQ has replaced the subscription of its id, which ends too.
func (s *Session) exceeds(f *wire.Frame, now time.Time) bool {
	switch f.Label {
	case wire.LabelEvent:
		wait, ok := s.client.Event(now)
		if !ok {
			s.answer(f.EventID, fault.RateLimited, quota(wait), now)
		}
		return !ok
	case wire.LabelReq:
		wait, ok := s.client.Request(now)
		if !ok {
			s.refuse(f.SubID, fault.FrameText(fault.RateLimited, quota(wait)))
		}
		return !ok
	case wire.LabelCount:
		wait, ok := s.client.Request(now)
		if !ok {
			s.closed(f.SubID, fault.FrameText(fault.RateLimited, quota(wait)))
		}
		return !ok
	default:
		return false
	}
}

// QuotaExceeded refuses what comes too soon, with the words of the frames.
func QuotaExceeded(wait time.Duration) error {
	wait = (wait + time.Second - 1).Truncate(time.Second)
	return fault.New(fault.RateLimited, quota(wait)).After(wait)
}

// quota says when there is room again, in whole seconds: nobody is invited to try sooner.
func quota(wait time.Duration) string {
	return fmt.Sprintf("quota exceeded; retry in %ds", (wait+time.Second-1)/time.Second)
}
