package checker

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// model is a relay that does everything right, at random moments: it commits events and changes of members at some
// moment between their sending and their OK, delivers events to who may read at the commit and at the delivery,
// and answers REQs from what is committed. One public topic, one private.
type model struct {
	*story
	random  *rand.Rand
	commits []commit
	members map[string][]moment // of the private topic, in order
}

type commit struct {
	number  int
	topic   string
	passing bool // it is ephemeral
	at      time.Duration
}

type moment struct {
	at     time.Duration
	member bool
}

const length = 100 * time.Second

func newModel(t *testing.T, seed uint64) *model {
	t.Helper()
	m := &model{story: tell(t), random: rand.New(rand.NewPCG(seed, 0)), members: map[string][]moment{}}
	for _, topic := range []string{"public", "private"} {
		for range 100 {
			m.publish(topic)
		}
	}
	for _, reader := range []string{"churner", "other churner"} {
		at, member := time.Duration(0), true
		for at < length {
			at = m.turn(reader, at, member) + m.within(12*time.Second)
			member = !member
		}
	}
	m.turn("stable", 0, true)
	return m
}

// within is a time up to most.
func (m *model) within(most time.Duration) time.Duration {
	return time.Duration(m.random.Int64N(int64(most)))
}

func (m *model) publish(topic string) {
	n := len(m.commits) + 1
	sent := 10*time.Second + m.within(length-20*time.Second)
	committed := sent + m.within(2*time.Second)
	passing := n%4 == 0
	m.publishing(id(n), topic, int64(n), passing, sent)
	if m.random.IntN(10) > 0 { // sometimes the OK is lost
		m.acknowledged(id(n), committed+m.within(2*time.Second))
	}
	m.commits = append(m.commits, commit{n, topic, passing, committed})
}

// turn changes a membership from at on and returns when the OK came.
func (m *model) turn(reader string, at time.Duration, member bool) time.Duration {
	done := at + m.within(time.Second)
	acked := done + m.within(time.Second)
	i := m.changing(reader, "private", member, at)
	m.changed(reader, "private", i, acked)
	m.members[reader] = append(m.members[reader], moment{done, member})
	return acked
}

func (m *model) may(reader, topic string, at time.Duration) bool {
	may := topic == "public"
	for _, change := range m.members[reader] {
		if topic == "private" && change.at <= at {
			may = change.member
		}
	}
	return may
}

// read subscribes: every now and then the connection ends and the client asks for everything again. It returns
// all periods.
func (m *model) read(reader, topic string) []*Period {
	s := m.Subscribe(reader, topic, topic == "private")
	var periods []*Period
	for at := 3 * time.Second; at < length; {
		end := at + 2*time.Second + m.within(30*time.Second)
		if end > length-12*time.Second {
			end = length + time.Second
		}
		periods = append(periods, m.serve(s, at, end))
		at = end + m.within(time.Second)
	}
	return periods
}

// serve is one period, from at to end.
func (m *model) serve(s *Subscription, at, end time.Duration) *Period {
	p := s.request("gateway-1", at, 0, at)
	snapshot := at + m.within(500*time.Millisecond)
	eose := snapshot + m.within(500*time.Millisecond)
	var live []delivery
	var passed time.Duration // when the last ephemeral one came
	for _, c := range m.commits {
		switch {
		case c.topic != s.topic:
		case c.at <= snapshot:
			if !c.passing && m.may(s.reader, s.topic, snapshot) {
				p.Event(id(c.number), eose)
			}
		default:
			arrives := max(eose, c.at) + m.within(3*time.Second)
			if c.passing { // one stream holds them in order
				arrives = max(arrives, passed)
				passed = arrives
			}
			if arrives < end && m.may(s.reader, s.topic, c.at) && m.may(s.reader, s.topic, arrives) {
				live = append(live, delivery{id: id(c.number), at: arrives})
			}
		}
	}
	p.EOSE(eose)
	slices.SortFunc(live, func(a, b delivery) int { return int(a.at - b.at) })
	for _, d := range live {
		p.Event(d.id, d.at)
	}
	if end < length {
		p.Ended(end)
	}
	return p
}

// Whatever a relay that does everything right does, it is right; and what it does wrong once is found once.
func TestARelayThatIsRightIsFoundRight(t *testing.T) {
	for seed := range uint64(50) {
		m := newModel(t, seed)
		slices.SortFunc(m.commits, func(a, b commit) int { return cmp.Compare(a.at, b.at) })
		stable := m.read("stable", "private")
		m.read("stable", "public")
		churner := m.read("churner", "private")
		m.read("other churner", "private")
		m.read("other churner", "public")
		r := m.checkAt(length)
		require.True(t, r.Right(), "seed %d: %v", seed, r.Examples)

		twice := stable[len(stable)-1]
		again := twice.deliveries[m.random.IntN(len(twice.deliveries))]
		again.at = length
		twice.deliveries = append(twice.deliveries, again)
		r = m.checkAt(length)
		require.Equal(t, 1, r.Duplicated, "seed %d", seed)

		lost := m.lose(stable)
		r = m.checkAt(length)
		require.Equal(t, 1, r.Missed, "seed %d: event %d", seed, lost)

		if m.leak(churner[0]) {
			r.Forbidden, r.Deliveries, r.Examples = 1, r.Deliveries+1, nil
			after := m.checkAt(length)
			after.Examples = nil
			require.Equal(t, r, after, "seed %d", seed)
		}
	}
}

// lose takes an acknowledged event out of all periods and returns its number.
func (m *model) lose(periods []*Period) int {
	for {
		e := m.random.IntN(len(m.events))
		if m.events[e].topic != periods[0].sub.topic || m.events[e].ephemeral || m.events[e].acked == never {
			continue
		}
		for _, p := range periods {
			p.deliveries = slices.DeleteFunc(p.deliveries, func(d delivery) bool { return d.event == e })
		}
		return e + 1
	}
}

// leak delivers an event that was sent while a reader certainly was out, before it comes back; false when there is
// none.
func (m *model) leak(p *Period) bool {
	changes := m.Log.members[membership{p.sub.reader, "private"}]
	for i, e := range m.events {
		for n := 1; n < len(changes); n += 2 { // the removals
			back := length
			if n+1 < len(changes) {
				back = changes[n+1].sent
			}
			came := slices.ContainsFunc(p.deliveries, func(d delivery) bool { return d.event == i }) // it was committed after the return
			if e.topic == "private" && e.sent > changes[n].acked && e.sent+time.Millisecond < back && !came {
				p.deliveries = append(p.deliveries, delivery{event: i, id: id(i + 1), at: e.sent + time.Millisecond, live: true})
				return true
			}
		}
	}
	return false
}
