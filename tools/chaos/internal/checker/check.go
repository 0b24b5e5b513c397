package checker

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxExamples bounds what a Report explains of each sort of fault.
const maxExamples = 5

const (
	// aftermath is how long the cluster may take to get over a fault. A fan-out node that is killed meanwhile says
	// nothing about what the loss of one alone costs.
	aftermath = 5 * time.Second
	// margin is how long before the next fault an event must have been acknowledged to be out of its reach.
	margin = 500 * time.Millisecond
)

// revoked is how the relay says that a reader has been removed.
const revoked = "restricted:"

// Report is what was wrong in a run. Its counts may be added up over runs.
type Report struct {
	// Events were acknowledged, Ephemeral are those of them that are not kept; Deliveries are all EVENT frames.
	Events, Ephemeral, Deliveries int
	// Missed, Duplicated, Forbidden and Stray count deliveries that should have been or should not; see the package.
	Missed, Duplicated, Forbidden, Stray int
	// Excused counts deliveries of ephemeral events that never came and that nobody can be sure of; see the package.
	Excused int
	// UnexplainedCloses counts subscriptions and connections.
	UnexplainedCloses int
	// Restarts counts connections whose gateway announced that it is being replaced.
	Restarts int
	// Pauses has a value for each subscription and each fan-out node that was killed while nothing else was broken.
	Pauses []time.Duration
	// Longest is the longest pause of all, whatever it came from, and LongestOf says in words whose it was.
	Longest   time.Duration
	LongestOf string
	// Examples say, in words, of the first of each fault what it was.
	Examples []string
}

// Right reports whether nothing was wrong.
func (r *Report) Right() bool {
	return r.Missed == 0 && r.Duplicated == 0 && r.Forbidden == 0 && r.Stray == 0 && r.UnexplainedCloses == 0
}

// Check looks at everything up to now.
func (l *Log) Check() Report { return l.checkAt(l.Now()) }

func (l *Log) checkAt(now time.Duration) Report {
	l.mu.RLock()
	defer l.mu.RUnlock()
	c := &check{log: l, now: now, said: make(map[string]int)}
	c.report.Restarts = l.restarts
	for i := range l.events {
		if l.events[i].acked != never {
			c.report.Events++
			if l.events[i].ephemeral {
				c.report.Ephemeral++
			}
		}
	}
	for _, s := range l.subs {
		c.subscription(s)
	}
	for _, e := range l.ends {
		if !l.explains(e) {
			c.report.UnexplainedCloses++
			c.example("unexplained", "connection to %s, begun at %s, ended at %s: %s", e.gateway, at(e.dialled), at(e.at), e.why)
		}
	}
	return c.report
}

// explains reports whether something was done to a gateway that ends such a connection. Called with mu held.
func (l *Log) explains(e end) bool {
	return slices.ContainsFunc(l.faults, func(f *fault) bool {
		return f.action != Other && f.process == e.gateway && f.from <= e.at && e.dialled <= f.until
	})
}

// check is one Check; the log's mu is held all the while.
type check struct {
	log    *Log
	now    time.Duration
	report Report
	said   map[string]int
}

func (c *check) example(sort, format string, args ...any) {
	c.said[sort]++
	if c.said[sort] <= maxExamples {
		c.report.Examples = append(c.report.Examples, sort+": "+fmt.Sprintf(format, args...))
	}
}

func (c *check) subscription(s *Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := rights{always: !s.private, changes: c.log.members[membership{s.reader, s.topic}]}
	first := make(map[int]time.Duration) // when each event came first
	for _, p := range s.periods {
		c.period(s, p, r, first)
	}
	c.missed(s, r, first)
	if len(c.log.events) > 0 && r.throughout(c.log.events[0].sent, c.now) {
		c.pauses(s, first)
	}
}

// period looks at what came in one period, and why it ended.
func (c *check) period(s *Subscription, p *Period, r rights, first map[int]time.Duration) {
	seen := make(map[int]bool, len(p.deliveries))
	for _, d := range p.deliveries {
		c.report.Deliveries++
		if d.event == unknown || c.log.events[d.event].topic != s.topic || d.at > p.closed {
			c.report.Stray++
			c.example("stray", "%s of %s got %s at %s, which is not for it", s.reader, s.topic, d.id, at(d.at))
			continue
		}
		if c.log.events[d.event].ephemeral && !d.live {
			c.report.Stray++
			c.example("stray", "%s of %s got %s in its history at %s, which is not kept", s.reader, s.topic, d.id, at(d.at))
			continue
		}
		if seen[d.event] {
			c.report.Duplicated++
			c.example("duplicated", "%s of %s got %s again at %s, through %s", s.reader, s.topic, d.id, at(d.at), p.gateway)
			continue
		}
		seen[d.event] = true
		if was, ok := first[d.event]; !ok || d.at < was {
			first[d.event] = d.at
		}
		from := p.requested
		if d.live {
			from = c.log.events[d.event].sent
		}
		if !r.sometime(from, d.at) {
			c.report.Forbidden++
			c.example("forbidden", "%s got %s of %s at %s, sent at %s, and was no member any more since before %s", s.reader, d.id, s.topic,
				at(d.at), at(c.log.events[d.event].sent), at(from))
		}
	}
	if p.closed != never && p.eose != never && !c.closeExplained(p, r) {
		c.report.UnexplainedCloses++
		c.example("unexplained", "CLOSED %q for %s of %s at %s, through %s", p.message, s.reader, s.topic, at(p.closed), p.gateway)
	}
}

// closeExplained reports whether the reader lost its right before the CLOSED came. That it has it again by then
// is no reason for the relay to be silent.
func (c *check) closeExplained(p *Period, r rights) bool {
	return strings.HasPrefix(p.message, revoked) && slices.ContainsFunc(r.changes, func(ch change) bool {
		return !ch.member && ch.sent <= p.closed && p.requested <= ch.acked
	})
}

// missed counts what was owed and never came.
func (c *check) missed(s *Subscription, r rights, first map[int]time.Duration) {
	for i := range c.log.events {
		e := &c.log.events[i]
		if e.topic != s.topic || e.acked == never {
			continue
		}
		if _, came := first[i]; came {
			continue
		}
		if e.ephemeral {
			owed, excused := c.owedLive(s, r, e)
			if excused {
				c.report.Excused++
			}
			if !owed {
				continue
			}
		} else if !c.owed(s, r, e) {
			continue
		}
		c.report.Missed++
		what := "an event"
		if e.ephemeral {
			what = "an ephemeral event"
		}
		c.example("missed", "%s of %s never got %s that was sent at %s and acknowledged at %s", s.reader, s.topic, what, at(e.sent), at(e.acked))
	}
}

// owed reports whether the subscription must have got an event. See the package for why.
func (c *check) owed(s *Subscription, r rights, e *event) bool {
	if r.throughout(e.sent, c.now) {
		return true
	}
	return slices.ContainsFunc(s.periods, func(p *Period) bool {
		return p.eose != never && e.acked < p.requested && e.createdAt >= p.since && r.throughout(p.requested, p.eose)
	})
}

// pauses notes how long events took to somebody who was entitled all the time.
func (c *check) pauses(s *Subscription, first map[int]time.Duration) {
	kills := c.kills()
	worst := make([]time.Duration, len(kills))
	longest := unknown
	for i, came := range first {
		acked := c.log.events[i].acked
		if acked == never {
			continue
		}
		if came-acked > c.report.Longest {
			c.report.Longest, longest = came-acked, i
		}
		for k, kill := range kills {
			if came >= kill.from && acked < kill.until {
				worst[k] = max(worst[k], came-max(acked, kill.from))
			}
		}
	}
	c.report.Pauses = append(c.report.Pauses, worst...)
	if longest != unknown {
		c.report.LongestOf = c.story(s, longest, first[longest])
	}
}

// story says how an event came, so that somebody who sees a long pause knows whether it was the relay's or was spent on a
// new connection.
func (c *check) story(s *Subscription, event int, came time.Duration) string {
	text := fmt.Sprintf("%s of %s got at %s what was acknowledged at %s", s.reader, s.topic, at(came), at(c.log.events[event].acked))
	for _, p := range s.periods {
		for _, d := range p.deliveries {
			if d.event != event || d.at != came {
				continue
			}
			how := "live"
			if !d.live {
				how = "in its history"
			}
			return fmt.Sprintf("%s, %s, through %s, dialled at %s and asked at %s", text, how, p.gateway, at(p.dialled), at(p.requested))
		}
	}
	return text
}

// span is a part of a run.
type span struct{ from, until time.Duration }

// kills returns when fan-out nodes were killed while nothing else was broken, each until the next fault comes near.
func (c *check) kills() []span {
	var spans []span
	for _, f := range c.log.faults {
		if !f.killsFanout() {
			continue
		}
		s, alone := span{f.from, never}, true
		for _, other := range c.log.faults {
			if other.from > f.from {
				s.until = min(s.until, other.from-margin)
			} else if !other.killsFanout() && (other.until == never || f.from < other.until+aftermath) {
				alone = false
			}
		}
		if alone {
			spans = append(spans, s)
		}
	}
	return spans
}

func (f *fault) killsFanout() bool {
	return f.action == Kill && strings.HasPrefix(f.process, "fanout-")
}

// at is a moment for people.
func at(t time.Duration) string { return t.Round(time.Millisecond).String() }
