package checker

import (
	"slices"
	"strings"
	"time"
)

// held is how long the relay holds an ephemeral event for fan-out nodes that come late, by its stream's age limit.
const held = time.Minute

// owedLive says of an ephemeral event that never came whether the subscription must have got it; or whether it would have been
// owed, but for what was done to the cluster. It is neither to who had no subscription when it was sent. See the package for why.
func (c *check) owedLive(s *Subscription, r rights, e *event) (owed, excused bool) {
	if !r.throughout(e.sent, c.now) {
		return false, false
	}
	i := slices.IndexFunc(s.periods, func(p *Period) bool {
		return p.eose <= e.sent && e.sent < min(p.closed, p.ended)
	})
	if i < 0 {
		return false, false
	}
	p := s.periods[i]
	until := min(p.closed, p.ended, c.loss(e))
	owed = until == never || until > e.acked+held || c.overtaken(p, e, until)
	return owed, !owed
}

// loss returns when the stream that may hold an event was first about to be lost, never if it was not. What was sent
// after NATS had ended is in the next one.
func (c *check) loss(e *event) time.Duration {
	first := never
	for _, f := range c.log.faults {
		if f.losesEphemeral() && e.sent <= f.until {
			first = min(first, f.from)
		}
	}
	return first
}

// overtaken reports whether an ephemeral event that was sent after the OK of another one came before a moment. One stream holds
// both, in this order, so the other one has been passed over.
func (c *check) overtaken(p *Period, e *event, until time.Duration) bool {
	return slices.ContainsFunc(p.deliveries, func(d delivery) bool {
		if d.event == unknown || d.at >= until || !d.live {
			return false
		}
		later := &c.log.events[d.event]
		return later.ephemeral && later.topic == e.topic && later.sent > e.acked
	})
}

// losesEphemeral reports whether the fault ended NATS, which keeps ephemeral events in memory.
func (f *fault) losesEphemeral() bool {
	return f.action != Other && (f.process == "nats" || strings.HasPrefix(f.process, "nats-"))
}
