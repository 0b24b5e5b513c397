package gateway_test

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

// replayer makes a fan-out fake behave: it files handles between two events, replays what a resumed one
// missed before anything live reaches it, and sends watermarks only when nothing is being replayed.
type replayer struct {
	node *fanout

	mu   sync.Mutex // excludes filing and processing, as a partition does
	log  []*commonv1.Envelope
	live map[*link][]uint64
	dead map[*link]bool // broken, though what was sent may still arrive
	calm bool           // nothing goes wrong
}

// committed returns the n-th event, from 0 on, of the global topic.
func committed(n int) *commonv1.Envelope {
	ev := unsigned(1, "event "+strconv.Itoa(n))[0]
	return &commonv1.Envelope{
		Raw:    ev.AppendJSON(nil),
		Header: &commonv1.Header{Id: ev.ID[:], Kind: 1, Community: openCommunity, CommitXid: uint64(n + 1), DatabaseId: 1},
	}
}

func (r *replayer) subscribe(l *link, s *fanoutv1.Subscribe) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead[l] {
		return true
	}
	if !r.calm && rand.N(20) == 0 {
		l.lost(fault.Overloaded, s.GetHandle())
		return true
	}
	head := uint64(len(r.log))
	l.attached(s, head)
	if s.GetResumeAfter() != nil {
		after := s.GetResumeAfter().GetEvents().GetSequence()
		for n := after - min(after, rand.Uint64N(4)) + 1; n <= head; n++ { // it may repeat a few
			l.deliver(n, r.log[n-1], s.GetHandle())
		}
	}
	r.live[l] = append(r.live[l], s.GetHandle())
	return true
}

func (r *replayer) publish(env *commonv1.Envelope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, env)
	n := uint64(len(r.log))
	for l, handles := range r.live {
		if len(handles) == 0 {
			delete(r.live, l)
			continue
		}
		l.deliver(n, env, handles...)
		if r.calm {
			continue
		}
		switch rand.N(200) {
		case 0:
			l.watermark(&fanoutv1.Subscribe{Community: openCommunity}, n)
		case 1: // a handle is given up; what comes after is not for it
			last := len(handles) - 1
			l.lost(fault.Overloaded, handles[last])
			r.live[l] = handles[:last]
		case 2: // the stream breaks; the node forgets
			delete(r.live, l)
			r.dead[l] = true
			l.cancel(fault.New(fault.Overloaded, "broken by the test"))
		}
	}
}

// Streams break, nodes shed load, watermarks come when they like: every subscription gets every event
// once and in order.
func TestExactlyOnceWhateverFanoutDoes(t *testing.T) {
	const subs, events = 5, 3000
	// The client's queue is not what is tested here.
	w := newWorld(t, fanouts(3), with(func(c *gateway.Config) { c.QueueFrames = subs * events }))
	w.linked()
	var nodes []*replayer
	for _, f := range w.fanouts {
		r := &replayer{node: f, live: make(map[*link][]uint64), dead: make(map[*link]bool)}
		f.answer(r.subscribe)
		nodes = append(nodes, r)
	}
	c := w.login(openHost, "alice")
	for i := range subs {
		c.send(`["REQ","s` + strconv.Itoa(i) + `",{"limit":0}]`)
	}
	for range subs {
		c.expect(wire.LabelEOSE)
	}
	go func() {
		for n := range events {
			env := committed(n)
			for _, r := range nodes {
				r.publish(env)
			}
		}
	}()
	next := make(map[string]int)
	for range subs * events {
		f := c.expect(wire.LabelEvent)
		require.Contains(t, string(f.RawEvent), `"event `+strconv.Itoa(next[f.SubID])+`"`, "subscription %s", f.SubID)
		next[f.SubID]++
	}
	select {
	case f := <-c.frames:
		require.Fail(t, "something is left", "%s %s", f.Label, f.SubID)
	case <-time.After(silence):
	}
}
