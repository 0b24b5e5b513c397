package gateway_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

// quota is the answer to what comes too fast.
const quota = "rate-limited: quota exceeded; retry in 1s"

// Whatever comes too fast gets its answer, and nothing of it reaches ingest or search; other clients are not
// concerned.
func TestWhoIsTooFastIsTold(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) {
		c.EventRate, c.EventBurst, c.ReqRate, c.ReqBurst = 2, 1, 2, 1
	}))
	c := w.login(openHost, "alice")
	const many = 6
	for i := range many {
		c.publish(nostrtest.Event(t, "alice", nostrtest.Content(strconv.Itoa(i))))
	}
	accepted := 0
	for range many {
		ok := c.expect(wire.LabelOK)
		if ok.OK {
			accepted++
		} else {
			require.Equal(t, quota, ok.Message)
		}
	}
	require.Less(t, accepted, many)
	require.Len(t, w.ingests[0].received(), accepted)

	for i := range many {
		c.send(fmt.Sprintf(`["REQ","s%d",{"kinds":[1]}]`, i))
	}
	opened := 0
	for range many {
		if f := c.next(); f.Label == wire.LabelEOSE {
			opened++
		} else {
			require.Equal(t, wire.LabelClosed, f.Label)
			require.Equal(t, quota, f.Message)
		}
	}
	require.Less(t, opened, many)
	for range many {
		c.send(`["COUNT","c",{"kinds":[1]}]`)
	}
	counted := 0
	for range many {
		if f := c.next(); f.Label == wire.LabelCount {
			counted++
		} else {
			require.Equal(t, wire.LabelClosed, f.Label)
			require.Equal(t, quota, f.Message)
		}
	}
	require.Less(t, counted, many)

	other := w.login(openHost, "bob")
	other.send(`["REQ","s",{"kinds":[1]}]`)
	other.eose("s")
}

// Who sends what is broken is not cut off, but read slowly, and connecting anew is no way out; who sends nothing
// broken is not concerned, from the same address.
func TestOffendersAreReadSlowly(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.OffenceRate, c.OffenceBurst = 1, 1 }))
	good := w.login(openHost, "alice")
	for range 2 {
		c := w.login(openHost, "bob")
		for range 2 {
			c.send(`["REQ",`)
			require.True(t, strings.HasPrefix(c.expect(wire.LabelNotice).Message, "invalid: "))
		}
		began := time.Now()
		c.send(`["REQ","s",{"kinds":[1]}]`)
		good.send(`["REQ","s",{"kinds":[1]}]`)
		good.eose("s")
		quick := time.Since(began)
		c.eose("s")
		require.Less(t, quick, time.Since(began))
		require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
	}
}

// A flood of the smallest frames is held back as such, not by what is in them.
func TestFramesAreReadAtARate(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.ReadRate, c.ReadBurst = 4<<10, 4<<10 }))
	c := w.login(openHost, "alice")
	for range 10 { // 1 KiB each
		c.send(`["CLOSE","s"]`)
	}
	c.send(`["REQ","a",{"kinds":[1]}]`)
	c.eose("a")
	began := time.Now()
	c.send(`["REQ","b",{"kinds":[1]}]`) // they may all have come in one read, and this in the next
	c.eose("b")
	require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
}

// Connections of one address that send much share what the address may send; one that sends little does not wait.
func TestFloodsOfAnAddressAreReadAtARate(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.AddressReadRate, c.AddressReadBurst = 4<<10, 4<<10 }))
	c, calm := w.login(openHost, "alice"), w.login(openHost, "bob")
	flood := time.Now()
	for range 64 { // 1 KiB each: what each connection may send that has just come, what the address may, and some more
		c.send(`["CLOSE","s"]`)
	}
	c.send(`["REQ","a",{"kinds":[1]}]`)
	c.eose("a")
	began := time.Now()
	c.send(`["REQ","b",{"kinds":[1]}]`) // all before may have come in one read, and this in the next
	calm.send(`["REQ","a",{"kinds":[1]}]`)
	calm.eose("a")
	quick := time.Since(began)
	c.eose("b")
	require.Less(t, quick, time.Since(began))
	require.GreaterOrEqual(t, time.Since(flood), 200*time.Millisecond)
}

// Until a client has sent a good event, and again after an invalid one, little of it is on the way at a time.
func TestTheUntrustedWait(t *testing.T) {
	const many, untrusted = 40, 16
	for _, tt := range []struct {
		name     string
		verdicts []fault.Reason // of the first events; the others get none
		want     int            // of the others, on the way at a time
	}{
		{"new", nil, untrusted},
		{"good", []fault.Reason{fault.Accepted}, many},
		{"known", []fault.Reason{fault.Duplicate}, many},
		{"forged", []fault.Reason{fault.Accepted, fault.Invalid}, untrusted},
		{"refused for another reason", []fault.Reason{fault.Accepted, fault.Restricted}, many},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			verdicts := tt.verdicts
			w.ingests[0].answer(func(*ingestv1.Submission) *ingestv1.Verdict {
				if len(verdicts) == 0 {
					return nil
				}
				v := &ingestv1.Verdict{Reason: verdicts[0]}
				verdicts = verdicts[1:]
				return v
			})
			c := w.login(openHost, "alice")
			for i := range tt.verdicts {
				c.publish(nostrtest.Event(t, "alice", nostrtest.Content(strconv.Itoa(i))))
				c.expect(wire.LabelOK)
			}
			for i := range many {
				c.publish(nostrtest.Event(t, "alice", nostrtest.Content("more"+strconv.Itoa(i))))
			}
			underWay := func() int { return len(w.ingests[0].received()) - len(tt.verdicts) }
			require.Eventually(t, func() bool { return underWay() >= tt.want }, patience, time.Millisecond) // the fake does not tell
			c.quiet()
			require.Equal(t, tt.want, underWay())
		})
	}
}
