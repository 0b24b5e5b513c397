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
		wait, ok := s.client.Event(len(f.RawEvent), now)
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

// trialEvents is how many EVENTs may wait for their verdict of a client that has sent no good one yet, or an invalid
// one since. Clients take turns in being verified, but keys cost nothing: what is forged is to cost nobody much time there.
const trialEvents = 16

// slot waits for a place for one EVENT in flight, which only the reading goroutine does; free gives it back. It is not ok when the connection has ended.
func (s *Session) slot() (free func(), ok bool) {
	if s.slots == nil {
		s.slots, s.trial = make(chan struct{}, s.srv.cfg.MaxEvents), make(chan struct{}, trialEvents)
	}
	places := []chan struct{}{s.slots}
	if !s.trusted.Load() {
		places = append(places, s.trial)
	}
	for i, place := range places {
		select {
		case place <- struct{}{}:
		case <-s.ctx.Done():
			for _, taken := range places[:i] {
				<-taken
			}
			return nil, false
		}
	}
	return func() {
		for _, place := range places {
			<-place
		}
	}, true
}

// judged notes the verdict on an EVENT.
func (s *Session) judged(reason fault.Reason) {
	switch {
	case fault.Succeeded(reason):
		s.trusted.Store(true)
	case reason == fault.Invalid:
		s.trusted.Store(false)
		s.client.Offend(time.Now())
	}
}

// quota says when there is room again, in whole seconds: nobody is invited to try sooner.
func quota(wait time.Duration) string {
	return fmt.Sprintf("quota exceeded; retry in %ds", (wait+time.Second-1)/time.Second)
}
