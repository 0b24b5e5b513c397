package checker

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// story is a run whose moments are written by hand: a moment is a number of seconds.
type story struct {
	t *testing.T
	*Log
}

func tell(t *testing.T) *story {
	t.Helper()
	return &story{t, New()}
}

// sec is a moment.
func sec(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// id names an event.
func id(n int) (id nostr.ID) {
	copy(id[:], strconv.Itoa(n))
	return id
}

// event is sent and acknowledged; an acknowledgement before it was sent is none.
func (s *story) event(n int, topic string, sent, acked float64) {
	s.sent(n, topic, false, sent, acked)
}

// passing is an event that is ephemeral.
func (s *story) passing(n int, topic string, sent, acked float64) {
	s.sent(n, topic, true, sent, acked)
}

func (s *story) sent(n int, topic string, ephemeral bool, sent, acked float64) {
	s.publishing(id(n), topic, 1000+int64(sent), ephemeral, sec(sent))
	if acked >= sent {
		s.acknowledged(id(n), sec(acked))
	}
}

func (s *story) change(reader, channel string, member bool, sent, acked float64) {
	i := s.changing(reader, channel, member, sec(sent))
	s.changed(reader, channel, i, sec(acked))
}

// period is one REQ that is answered at once, on a connection to gateway-1 of the same moment.
func (s *story) period(sub *Subscription, at float64) *Period {
	p := sub.request("gateway-1", sec(at), 0, sec(at))
	p.EOSE(sec(at))
	return p
}

// done is what was done to a process.
func (s *story) done(action Action, process string, from, until float64) {
	s.faults = append(s.faults, &fault{action: action, process: process, from: sec(from), until: sec(until)})
}

// check is made at a moment; only what is wrong is compared.
func (s *story) check(now float64) Report {
	s.t.Helper()
	r := s.checkAt(sec(now))
	s.t.Log(r.Examples)
	return r
}

// wrong are the counts of a report that are not as they should be.
type wrong struct{ missed, duplicated, forbidden, stray, closes int }

func (s *story) require(w wrong, now float64) {
	s.t.Helper()
	r := s.check(now)
	got := wrong{r.Missed, r.Duplicated, r.Forbidden, r.Stray, r.UnexplainedCloses}
	require.Equal(s.t, w, got)
	require.Equal(s.t, w == wrong{}, r.Right())
}

func TestNothingIsWrongWithWhatIsRight(t *testing.T) {
	s := tell(t)
	sub := s.Subscribe("bob", "lobby", false)
	p := s.period(sub, 1)
	for n := range 3 {
		s.event(n, "lobby", 2+float64(n), 2.5+float64(n))
		p.Event(id(n), sec(2.4+float64(n))) // it may come before the OK
	}
	s.event(8, "other", 2, 3)
	s.event(9, "lobby", 5, 0) // never acknowledged: it may come or not
	s.require(wrong{}, 10)
	require.Equal(t, 4, s.check(10).Events)
	require.Equal(t, 3, s.check(10).Deliveries)
}

func TestMissed(t *testing.T) {
	s := tell(t)
	sub := s.Subscribe("bob", "lobby", false)
	s.event(0, "lobby", 0.1, 0.2) // before the first REQ: it is history
	s.period(sub, 1)
	s.event(1, "lobby", 2, 3)
	s.require(wrong{missed: 2}, 10)
	// The next connection's history makes up for it.
	p := s.period(sub, 11)
	p.Event(id(0), sec(12))
	p.Event(id(1), sec(12))
	s.require(wrong{}, 20)
}

func TestDuplicated(t *testing.T) {
	s := tell(t)
	sub := s.Subscribe("bob", "lobby", false)
	s.event(1, "lobby", 0.1, 0.2)
	p := sub.request("gateway-1", 0, 0, sec(1))
	p.Event(id(1), sec(1.1))
	p.EOSE(sec(1.2))
	p.Event(id(1), sec(1.3)) // the history and live
	s.event(2, "lobby", 2, 2)
	p.Event(id(2), sec(3))
	p.Event(id(2), sec(4)) // live twice
	p.Event(id(2), sec(5)) // and once more
	s.require(wrong{duplicated: 3}, 10)

	s.period(sub, 11).Event(id(2), sec(12))
	s.require(wrong{duplicated: 3}, 20) // over a connection's end it is the client's to notice
}

func TestStray(t *testing.T) {
	s := tell(t)
	sub := s.Subscribe("bob", "lobby", false)
	p := s.period(sub, 1)
	s.event(1, "other", 2, 3)
	p.Event(id(1), sec(3))
	p.Event(id(7), sec(3)) // nobody published it
	s.require(wrong{stray: 2}, 10)

	s.event(2, "lobby", 11, 12)
	p.Closed("error: lagged, resubscribe", sec(12))
	p.Event(id(2), sec(13))
	s.require(wrong{stray: 3, closes: 1, missed: 1}, 20)
}

// What comes around a removal whose OK came at 6 and which was sent at 5.
func TestForbidden(t *testing.T) {
	for name, c := range map[string]struct {
		sent, acked float64
		live        bool
		requested   float64
		arrived     float64
		want        wrong
	}{
		"sent before the removal, live":                {sent: 4, acked: 4.5, live: true, requested: 3, arrived: 7},
		"acknowledged while the removal was under way": {sent: 5.2, acked: 5.8, live: true, requested: 3, arrived: 7},
		"sent before the OK of the removal":            {sent: 5.9, acked: 8, live: true, requested: 3, arrived: 8},
		"sent after the OK of the removal":             {sent: 6.1, acked: 6.2, live: true, requested: 3, arrived: 6.3, want: wrong{forbidden: 1}},
		"history asked for before the removal":         {sent: 3, acked: 3.5, requested: 4.9, arrived: 7},
		"history asked for after the removal":          {sent: 3, acked: 3.5, requested: 6.5, arrived: 7, want: wrong{forbidden: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t)
			s.change("bob", "secret", true, 1, 2)
			s.change("bob", "secret", false, 5, 6)
			sub := s.Subscribe("bob", "secret", true)
			s.event(1, "secret", c.sent, c.acked)
			p := sub.request("gateway-1", 0, 0, sec(c.requested))
			if c.live {
				p.EOSE(sec(c.requested))
			}
			p.Event(id(1), sec(c.arrived))
			s.require(c.want, 20)
		})
	}
}

func TestWhoNeverWasAMemberMayHaveNothing(t *testing.T) {
	s := tell(t)
	sub := s.Subscribe("eve", "secret", true)
	p := s.period(sub, 1)
	s.event(1, "secret", 2, 3)
	s.event(2, "secret", 2, 0)
	s.require(wrong{}, 10)
	p.Event(id(1), sec(3))
	p.Event(id(2), sec(3)) // also when nobody knows whether it was accepted
	s.require(wrong{forbidden: 2}, 10)
}

func TestWhoIsAMemberAgainMayReadWhatWasSaidMeanwhile(t *testing.T) {
	s := tell(t)
	s.change("bob", "secret", true, 1, 2)
	sub := s.Subscribe("bob", "secret", true)
	p := s.period(sub, 3)
	s.change("bob", "secret", false, 5, 6)
	s.event(1, "secret", 7, 8)
	s.change("bob", "secret", true, 9, 10)
	s.require(wrong{}, 11) // it is owed to nobody who was out
	p.Event(id(1), sec(11))
	s.require(wrong{}, 12)
}

// A member is removed at 5 to 6 and added again at 9 to 10.
func TestWhatIsOwedAroundARemoval(t *testing.T) {
	for name, c := range map[string]struct {
		sent, acked float64
		history     bool // whether the member asks again at 11
		missed      int
	}{
		"long before the removal":              {sent: 3, acked: 3.5},
		"while the removal is under way":       {sent: 4.9, acked: 5.1},
		"while out":                            {sent: 7, acked: 8},
		"while the return is under way":        {sent: 9.5, acked: 9.6},
		"after the return":                     {sent: 10.1, acked: 10.2, missed: 1},
		"while out, and history asked for":     {sent: 7, acked: 8, history: true, missed: 1},
		"before, and history asked for":        {sent: 3, acked: 3.5, history: true, missed: 1},
		"acknowledged after history was asked": {sent: 9.5, acked: 12, history: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t)
			s.change("bob", "secret", true, 1, 2)
			sub := s.Subscribe("bob", "secret", true)
			s.period(sub, 2.5)
			s.change("bob", "secret", false, 5, 6)
			s.change("bob", "secret", true, 9, 10)
			if c.history {
				s.period(sub, 11)
			}
			s.event(1, "secret", c.sent, c.acked)
			s.require(wrong{missed: c.missed}, 20)
		})
	}
}

func TestWhatIsOlderThanAskedForIsNotOwed(t *testing.T) {
	s := tell(t)
	s.change("bob", "secret", true, 1, 2)
	sub := s.Subscribe("bob", "secret", true)
	s.event(1, "secret", 3, 3.5) // created_at is 1003
	p := sub.request("gateway-1", 0, 1004, sec(4))
	p.EOSE(sec(4.5))
	s.change("bob", "secret", false, 5, 6)
	s.require(wrong{}, 20)
}

func TestClosedSubscriptions(t *testing.T) {
	for name, c := range map[string]struct {
		message string
		at      float64
		opening bool // it had no EOSE yet
		closes  int
	}{
		"lagged":                      {message: "error: lagged, resubscribe", at: 4, closes: 1},
		"refused":                     {message: "error: try again", at: 4, opening: true},
		"revoked without reason":      {message: "restricted: channel access revoked", at: 4, closes: 1},
		"revoked while it is":         {message: "restricted: channel access revoked", at: 5.5},
		"revoked":                     {message: "restricted: channel access revoked", at: 7},
		"told late":                   {message: "restricted: channel access revoked", at: 12},
		"lagged, whoever was removed": {message: "error: lagged, resubscribe", at: 7, closes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t)
			s.change("bob", "secret", true, 1, 2)
			sub := s.Subscribe("bob", "secret", true)
			p := sub.request("gateway-1", 0, 0, sec(3))
			if !c.opening {
				p.EOSE(sec(3))
			}
			s.change("bob", "secret", false, 5, 6)
			s.change("bob", "secret", true, 9, 10)
			p.Closed(c.message, sec(c.at))
			s.require(wrong{closes: c.closes}, 20)
		})
	}
	s := tell(t)
	s.change("bob", "secret", true, 1, 2)
	s.change("bob", "secret", false, 2, 3)
	s.change("bob", "secret", true, 3, 4)
	s.period(s.Subscribe("bob", "secret", true), 5).Closed("restricted: channel access revoked", sec(6))
	s.require(wrong{closes: 1}, 20) // that removal was over before the REQ
}

// gateway-1 is killed at 5 and gone at 6; what is done to another explains nothing.
func TestEndedConnections(t *testing.T) {
	for name, c := range map[string]struct {
		action      Action
		dialled, at float64
		closes      int
	}{
		"killed":              {action: Kill, dialled: 1, at: 5.5},
		"noticed late":        {action: Kill, dialled: 1, at: 9},
		"begun while it died": {action: Kill, dialled: 5.5, at: 5.6},
		"told to leave":       {action: Leave, dialled: 1, at: 5.5},
		"ended before":        {action: Kill, dialled: 1, at: 4, closes: 1},
		"begun afterwards":    {action: Kill, dialled: 7, at: 8, closes: 1},
		"frozen is no reason": {action: Other, dialled: 1, at: 5.5, closes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t)
			s.done(c.action, "gateway-1", 5, 6)
			s.Disconnected("gateway-1", sec(c.dialled), sec(c.at), "EOF")
			s.require(wrong{closes: c.closes}, 20)
			s.Disconnected("gateway-2", sec(c.dialled), sec(c.at), "EOF")
			s.require(wrong{closes: c.closes + 1}, 20)
		})
	}
}

func TestPauses(t *testing.T) {
	s := tell(t)
	always := s.period(s.Subscribe("bob", "lobby", false), 1)
	sometimes := s.Subscribe("eve", "secret", true)
	s.change("eve", "secret", true, 0, 1)
	other := s.period(sometimes, 1)
	s.done(Kill, "ingest-1", -1, -0.5)
	s.event(1, "lobby", 3, 3)
	always.Event(id(1), sec(4)) // took a second, before anything
	s.event(2, "lobby", 4.8, 4.9)
	s.done(Kill, "fanout-2", 5, 5)
	always.Event(id(2), sec(5.5)) // half a second of it after the kill
	s.event(3, "lobby", 6, 6.1)
	always.Event(id(3), sec(6)) // before its OK
	s.done(Kill, "fanout-1", 7, 7)
	s.event(4, "lobby", 8, 8)
	always.Event(id(4), sec(10))
	s.event(5, "secret", 8, 8)
	other.Event(id(5), sec(9))
	s.done(Other, "fanout to nats", 12, 15)
	s.event(6, "lobby", 11.7, 11.8) // too near to what comes
	always.Event(id(6), sec(15))
	s.done(Kill, "fanout-1", 16, 16) // so soon after it, it does not count
	s.event(7, "lobby", 17, 17)
	always.Event(id(7), sec(19))
	s.change("eve", "secret", false, 9, 9)
	r := s.check(20)
	require.Equal(t, []time.Duration{sec(0.5), sec(2)}, r.Pauses, "of bob alone")
	require.Equal(t, sec(3.2), r.Longest.Round(time.Millisecond))
	require.Equal(t, "bob of lobby got at 15s what was acknowledged at 11.8s, live, through gateway-1, dialled at 1s and asked at 1s", r.LongestOf)
	require.True(t, r.Right())
}

// An ephemeral event is sent at 10 and acknowledged at 11, and does not come to who listens from 1 on.
func TestWhatIsNotKept(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*story, *Period)
		missed  int
		excused int
	}{
		"nothing happens":                {missed: 1},
		"its connection ends":            {func(_ *story, p *Period) { p.Ended(sec(12)) }, 0, 1},
		"its connection ended before":    {func(_ *story, p *Period) { p.Ended(sec(9)) }, 0, 0},
		"its connection ends long after": {func(_ *story, p *Period) { p.Ended(sec(72)) }, 1, 0},
		"its connection ends after a later one came": {func(s *story, p *Period) {
			s.passing(2, "lobby", 11.5, 12)
			p.Event(id(2), sec(12))
			p.Ended(sec(13))
		}, 1, 0},
		"its connection ends after one came that was sent before its OK": {func(s *story, p *Period) {
			s.passing(2, "lobby", 10.5, 12)
			p.Event(id(2), sec(12))
			p.Ended(sec(13))
		}, 0, 1},
		"its connection ends after one came that is kept": {func(s *story, p *Period) {
			s.event(2, "lobby", 11.5, 12)
			p.Event(id(2), sec(12))
			p.Ended(sec(13))
		}, 0, 1},
		"NATS is killed":           {func(s *story, _ *Period) { s.done(Kill, "nats", 12, 12.1) }, 0, 1},
		"NATS leaves meanwhile":    {func(s *story, _ *Period) { s.done(Leave, "nats", 9.5, 10.5) }, 0, 1},
		"NATS had left before":     {func(s *story, _ *Period) { s.done(Leave, "nats", 9, 9.9) }, 1, 0},
		"NATS is killed later":     {func(s *story, _ *Period) { s.done(Kill, "nats", 72, 72.1) }, 1, 0},
		"NATS is frozen":           {func(s *story, _ *Period) { s.done(Other, "nats", 10.5, 15) }, 1, 0},
		"ingest is cut off":        {func(s *story, _ *Period) { s.done(Other, "ingest to nats", 9, 15) }, 1, 0},
		"a fan-out node is killed": {func(s *story, _ *Period) { s.done(Kill, "fanout-1", 10.5, 10.5) }, 1, 0},
		"NATS is killed after a later one came": {func(s *story, p *Period) {
			s.passing(2, "lobby", 11.5, 12)
			p.Event(id(2), sec(12))
			s.done(Kill, "nats", 13, 13.1)
		}, 1, 0},
		"a later one comes after NATS was killed": {func(s *story, p *Period) {
			s.done(Kill, "nats", 12, 12.1)
			s.passing(2, "lobby", 13, 14)
			p.Event(id(2), sec(14))
		}, 0, 1},
		"it comes in a history": {func(s *story, p *Period) {
			p.Ended(sec(12))
			later := p.sub.request("gateway-1", 0, 0, sec(13))
			later.Event(id(1), sec(13))
			later.EOSE(sec(14))
		}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t)
			p := s.period(s.Subscribe("bob", "lobby", false), 1)
			s.passing(1, "lobby", 10, 11)
			if c.happens != nil {
				c.happens(s, p)
			}
			r := s.check(100)
			require.Equal(t, []int{c.missed, c.excused}, []int{r.Missed, r.Excused})
			require.Equal(t, name == "it comes in a history", r.Stray == 1)
		})
	}
}

// It is owed to nobody who came too late, or was out.
func TestWhatIsNotKeptIsOwedToWhoListens(t *testing.T) {
	s := tell(t)
	s.change("eve", "secret", true, 1, 2)
	secret := s.period(s.Subscribe("eve", "secret", true), 3)
	s.change("eve", "secret", false, 5, 6)
	s.passing(1, "secret", 4, 4.5)
	s.passing(2, "secret", 7, 7.5)
	s.passing(3, "lobby", 8, 9)
	s.passing(4, "lobby", 10, 0)
	s.period(s.Subscribe("bob", "lobby", false), 8.5)
	s.require(wrong{}, 20)
	require.Zero(t, s.check(20).Excused)
	require.Equal(t, 3, s.check(20).Ephemeral)
	secret.Event(id(2), sec(8))
	s.require(wrong{forbidden: 1}, 20)
}

func TestOnlyTheFirstOfEachSortIsExplained(t *testing.T) {
	s := tell(t)
	s.period(s.Subscribe("bob", "lobby", false), 1)
	for n := range 3 * maxExamples {
		s.event(n, "lobby", 2, 3)
	}
	r := s.check(10)
	require.Equal(t, 3*maxExamples, r.Missed)
	require.Len(t, r.Examples, maxExamples)
}
