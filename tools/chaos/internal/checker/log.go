package checker

import (
	"sync"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// never is the time of what has not happened.
const never = time.Duration(1<<63 - 1)

// Action is what was done to a process.
type Action string

// The actions. Kill and Leave end a process's connections and so explain it when they end.
const (
	Kill  Action = "kill"  // SIGKILL
	Leave Action = "leave" // SIGTERM
	Other Action = "other" // whatever else: frozen, cut off, added
)

// Log is what happened in one run.
type Log struct {
	start time.Time

	mu       sync.RWMutex
	events   []event                 // guarded by mu
	byID     map[nostr.ID]int        // guarded by mu; index of events
	members  map[membership][]change // guarded by mu; in order
	faults   []*fault                // guarded by mu; in order
	subs     []*Subscription         // guarded by mu
	ends     []end                   // guarded by mu
	restarts int                     // guarded by mu
}

type event struct {
	topic     string
	ephemeral bool
	createdAt int64
	sent      time.Duration
	acked     time.Duration // never until then
}

// membership is somebody in a private channel.
type membership struct{ reader, channel string }

// change is that of a membership, at some moment between sent and acked.
type change struct {
	member      bool
	sent, acked time.Duration
}

type fault struct {
	action  Action
	process string
	from    time.Duration
	until   time.Duration // never until then
}

// end is that of a connection.
type end struct {
	gateway     string
	dialled, at time.Duration
	why         string
}

// New returns the log of a run that begins now.
func New() *Log {
	return &Log{start: time.Now(), byID: make(map[nostr.ID]int), members: make(map[membership][]change)}
}

// Now is the time since the run began.
func (l *Log) Now() time.Duration { return time.Since(l.start) }

// Publishing notes that an event of a topic, made at a Unix second, is about to be sent for the first time. An ephemeral one
// is passed on and not kept.
func (l *Log) Publishing(id nostr.ID, topic string, createdAt int64, ephemeral bool) {
	l.publishing(id, topic, createdAt, ephemeral, l.Now())
}

func (l *Log) publishing(id nostr.ID, topic string, createdAt int64, ephemeral bool, at time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byID[id] = len(l.events)
	l.events = append(l.events, event{topic: topic, ephemeral: ephemeral, createdAt: createdAt, sent: at, acked: never})
}

// Acknowledged notes the first OK true for an event.
func (l *Log) Acknowledged(id nostr.ID) { l.acknowledged(id, l.Now()) }

func (l *Log) acknowledged(id nostr.ID, at time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i, ok := l.byID[id]; ok && l.events[i].acked == never {
		l.events[i].acked = at
	}
}

// Changing notes that a reader is about to be added to a private channel or removed from it; the result is to
// be called when the relay has acknowledged it. Changes of one membership follow each other, each after the
// acknowledgement of the one before. A topic that has no changes at all can be read by everybody.
func (l *Log) Changing(reader, channel string, member bool) (acknowledged func()) {
	i := l.changing(reader, channel, member, l.Now())
	return func() { l.changed(reader, channel, i, l.Now()) }
}

func (l *Log) changing(reader, channel string, member bool, at time.Duration) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := membership{reader, channel}
	l.members[key] = append(l.members[key], change{member: member, sent: at, acked: never})
	return len(l.members[key]) - 1
}

func (l *Log) changed(reader, channel string, i int, at time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.members[membership{reader, channel}][i].acked = at
}

// Breaking notes that something is about to be done to a process, or to a link; the result is to be called when it is done:
// when the process is gone, or works again.
func (l *Log) Breaking(action Action, process string) (done func()) {
	f := &fault{action: action, process: process, from: l.Now(), until: never}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, f)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		f.until = l.Now()
	}
}

// Subscription is what one reader wants to see of one topic.
type Subscription struct {
	log           *Log
	reader, topic string
	private       bool

	mu      sync.Mutex
	periods []*Period // guarded by mu
}

// Period is one REQ on one connection.
type Period struct {
	sub     *Subscription
	gateway string
	dialled time.Duration
	since   int64

	// Guarded by sub.mu.
	requested  time.Duration
	eose       time.Duration // never until then
	closed     time.Duration // never until then
	ended      time.Duration // of the connection; never until then
	message    string        // of CLOSED
	deliveries []delivery
}

// delivery is an EVENT frame.
type delivery struct {
	event int // index, or unknown
	id    nostr.ID
	at    time.Duration
	live  bool
}

// unknown is the index of an event that nobody in the run has published.
const unknown = -1

// Subscribe adds a subscription. Its reader may see a private topic only while it is a member, any other always.
func (l *Log) Subscribe(reader, topic string, private bool) *Subscription {
	s := &Subscription{log: l, reader: reader, topic: topic, private: private}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs = append(l.subs, s)
	return s
}

// Request notes that the subscription is about to be asked for, from the Unix second since on, on a connection
// to a gateway that was begun at dialled.
func (s *Subscription) Request(gateway string, dialled time.Duration, since int64) *Period {
	return s.request(gateway, dialled, since, s.log.Now())
}

func (s *Subscription) request(gateway string, dialled time.Duration, since int64, at time.Duration) *Period {
	p := &Period{sub: s, gateway: gateway, dialled: dialled, since: since, requested: at, eose: never, closed: never, ended: never}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.periods = append(s.periods, p)
	return p
}

// Event notes an EVENT frame that arrived at a moment of the log's clock.
func (p *Period) Event(id nostr.ID, at time.Duration) {
	l := p.sub.log
	l.mu.RLock()
	i, known := l.byID[id]
	l.mu.RUnlock()
	if !known {
		i = unknown
	}
	p.sub.mu.Lock()
	defer p.sub.mu.Unlock()
	p.deliveries = append(p.deliveries, delivery{event: i, id: id, at: at, live: p.eose != never})
}

// EOSE notes that the history has been sent.
func (p *Period) EOSE(at time.Duration) {
	p.sub.mu.Lock()
	defer p.sub.mu.Unlock()
	p.eose = at
}

// Closed notes a CLOSED frame.
func (p *Period) Closed(message string, at time.Duration) {
	p.sub.mu.Lock()
	defer p.sub.mu.Unlock()
	p.closed, p.message = at, message
}

// Ended notes that the connection has ended before the run has, from whichever side.
func (p *Period) Ended(at time.Duration) {
	p.sub.mu.Lock()
	defer p.sub.mu.Unlock()
	p.ended = at
}

// Disconnected notes that the relay, or what lies between, has ended a connection to a gateway which was
// authenticated and had been begun at dialled. why is what the client saw.
func (l *Log) Disconnected(gateway string, dialled, at time.Duration, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, end{gateway: gateway, dialled: dialled, at: at, why: why})
}

// Restarted notes that a gateway has ended a connection with the announcement that it is being replaced, where that may
// happen at any time. It explains itself.
func (l *Log) Restarted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restarts++
}
