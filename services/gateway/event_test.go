package gateway_test

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

func TestVerdictsBecomeOKs(t *testing.T) {
	for _, tt := range []struct {
		name   string
		reason fault.Reason
		msg    string
		ok     bool
		want   string
	}{
		{"accepted", fault.Accepted, "", true, ""},
		{"with a message", fault.Accepted, "welcome", true, "welcome"},
		{"duplicate", fault.Duplicate, "a newer version is stored", true, "duplicate: a newer version is stored"},
		{"invalid", fault.Invalid, "bad signature", false, "invalid: bad signature"},
		{"restricted", fault.Restricted, "not a channel member", false, "restricted: not a channel member"},
		{"rate-limited", fault.RateLimited, "", false, "rate-limited: slow down"},
		{"internal", fault.InternalFault, "internal (ref 1a2b3c4d)", false, "error: internal (ref 1a2b3c4d)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.ingests[0].answer(func(*ingestv1.Submission) *ingestv1.Verdict {
				return &ingestv1.Verdict{Reason: tt.reason, Message: tt.msg}
			})
			c := w.login(openHost, "alice")
			ev := nostrtest.Event(t, "alice", nostrtest.Content("raw \"bytes\" é"))
			c.publish(ev)
			f := c.expect(wire.LabelOK)
			require.Equal(t, ev.ID, f.EventID)
			require.Equal(t, tt.ok, f.OK)
			require.Equal(t, tt.want, f.Message)
			got := w.ingests[0].received()
			require.Len(t, got, 1)
			require.Equal(t, string(nostrtest.Raw(ev)), string(got[0].GetRaw()))
			require.Equal(t, int64(openCommunity), got[0].GetCommunity())
			pk := nostrtest.PubKey("alice")
			require.Equal(t, [][]byte{pk[:]}, got[0].GetPrincipal().GetPubkeys())
		})
	}
}

func TestRawBytesTravelAsTheyAre(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	raw := strings.Replace(string(nostrtest.Raw(nostrtest.Event(t, "alice"))), `"content":""`, `  "content" : ""`, 1)
	c.send(`[ "EVENT" , ` + raw + ` ]`)
	require.True(t, c.expect(wire.LabelOK).OK)
	require.Equal(t, raw, string(w.ingests[0].received()[0].GetRaw()))
}

// A stream that breaks while an event waits for its verdict costs a retry on another replica, not an
// error.
func TestASubmissionIsRetriedElsewhere(t *testing.T) {
	w := newWorld(t, ingests(2))
	var first atomic.Bool
	victim := make(chan *ingest, 2)
	for _, in := range w.ingests {
		in.answer(func(*ingestv1.Submission) *ingestv1.Verdict {
			if first.CompareAndSwap(false, true) {
				victim <- in
				return nil
			}
			return &ingestv1.Verdict{}
		})
	}
	c := w.login(openHost, "alice")
	ev := nostrtest.Event(t, "alice")
	c.publish(ev)
	dead := take(t, victim)
	dead.breakAll()
	f := c.expect(wire.LabelOK)
	require.True(t, f.OK, f.Message)
	require.Equal(t, ev.ID, f.EventID)
	c.quiet()
}

func TestASubmissionIsRetriedOnlyOnce(t *testing.T) {
	w := newWorld(t)
	in := w.ingests[0]
	got := make(chan struct{}, 10)
	in.answer(func(*ingestv1.Submission) *ingestv1.Verdict {
		got <- struct{}{}
		return nil
	})
	c := w.login(openHost, "alice")
	c.publish(nostrtest.Event(t, "alice"))
	take(t, got)
	in.breakAll()
	take(t, got) // the same replica, after the stream came back
	in.breakAll()
	f := c.expect(wire.LabelOK)
	require.False(t, f.OK)
	require.Equal(t, "error: temporarily unavailable, try again", f.Message)
	c.quiet()
	require.Len(t, in.received(), 2)
}

func TestVerdictsHaveADeadline(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.SubmitTimeout = 200 * time.Millisecond }))
	late := make(chan *ingestv1.Submission, 1)
	w.ingests[0].answer(func(s *ingestv1.Submission) *ingestv1.Verdict {
		late <- s
		return nil
	})
	c := w.login(openHost, "alice")
	c.publish(nostrtest.Event(t, "alice"))
	take(t, late)
	f := c.expect(wire.LabelOK)
	require.False(t, f.OK)
	require.Contains(t, f.Message, "error: timed out")
	c.quiet()
}

func TestWithoutIngestEventsFail(t *testing.T) {
	w := newWorld(t, ingests(0), with(func(c *gateway.Config) { c.SubmitWait = 100 * time.Millisecond }))
	c := w.login(openHost, "alice")
	c.publish(nostrtest.Event(t, "alice"))
	f := c.expect(wire.LabelOK)
	require.False(t, f.OK)
	require.Equal(t, "error: temporarily unavailable, try again", f.Message)
}

func TestAnIngestRestartIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	w.stop("ingest-0")
	c.publish(nostrtest.Event(t, "alice"))
	w.start("ingest-0", w.ingestServer(w.ingests[0]))
	f := c.expect(wire.LabelOK)
	require.True(t, f.OK, f.Message)
}

func TestWhatAClientPipelinesStaysInOrder(t *testing.T) {
	const n = 500
	w := newWorld(t, ingests(2))
	c := w.login(openHost, "alice")
	events := unsigned(n, "a")
	go func() {
		for _, ev := range events {
			_ = c.ws.Write(t.Context(), 1, wire.AppendClientEvent(nil, nostrtest.Raw(ev)))
		}
	}()
	for range n {
		require.True(t, c.expect(wire.LabelOK).OK)
	}
	got := append(w.ingests[0].received(), w.ingests[1].received()...)
	require.Len(t, got, n)
	for i, s := range got {
		require.Equal(t, string(nostrtest.Raw(events[i])), string(s.GetRaw()), "one replica gets all of a connection, in order")
	}
}

// unsigned returns n distinct events that nobody has signed: the gateway does not look.
func unsigned(n int, content string) []*nostr.Event {
	events := make([]*nostr.Event, n)
	for i := range events {
		events[i] = &nostr.Event{Kind: nostr.KindText, CreatedAt: int64(i), Tags: nostr.Tags{}, Content: content}
		events[i].ID = events[i].ComputeID()
	}
	return events
}

// Every EVENT gets exactly one OK, whatever happens to the streams meanwhile.
func TestOneOKEach(t *testing.T) {
	const clients, each = 8, 500
	w := newWorld(t, ingests(3))
	stop := make(chan struct{})
	var chaos sync.WaitGroup
	chaos.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := range 30 {
			select {
			case <-stop:
				return
			case <-tick.C:
				w.ingests[i%len(w.ingests)].breakAll()
			}
		}
	})
	var wg sync.WaitGroup
	for i := range clients {
		c := w.login(openHost, "alice")
		events := unsigned(each, strconv.Itoa(i))
		wg.Go(func() {
			for _, ev := range events {
				_ = c.ws.Write(t.Context(), 1, wire.AppendClientEvent(nil, nostrtest.Raw(ev)))
			}
		})
		wg.Go(func() {
			seen := make(map[nostr.ID]int)
			for range each {
				select {
				case f, ok := <-c.frames:
					if ok && f.Label == wire.LabelOK {
						seen[f.EventID]++
					}
				case <-time.After(patience):
				}
			}
			for _, ev := range events {
				if seen[ev.ID] != 1 {
					t.Errorf("event %s got %d OKs", ev.ID, seen[ev.ID])
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	chaos.Wait()
}

// A client that sends without reading its OKs is held back, and nobody else is.
func TestAClientThatDoesNotReadIsHeldBack(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.MaxEvents = 4 }))
	hold := nostrtest.PubKey("alice")
	w.ingests[0].answer(func(s *ingestv1.Submission) *ingestv1.Verdict {
		if string(s.GetPrincipal().GetPubkeys()[0]) == string(hold[:]) {
			return nil
		}
		return &ingestv1.Verdict{}
	})
	c := w.login(openHost, "alice")
	for _, ev := range unsigned(20, "a") {
		c.publish(ev)
	}
	other := w.login(openHost, "bob")
	other.publish(nostrtest.Event(t, "bob"))
	require.True(t, other.expect(wire.LabelOK).OK)
	require.Len(t, w.ingests[0].received(), 4+1, "four of the first client may be in flight")
}
