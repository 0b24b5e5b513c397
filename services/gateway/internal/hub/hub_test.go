package hub_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
	"github.com/apiary-relay/apiary/services/gateway/internal/hub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHandlesAreNeverReused(t *testing.T) {
	r := hub.NewRegistry[int]()
	var mu sync.Mutex
	seen := make(map[uint64]bool)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 500 {
				h := r.Add(i)
				v, ok := r.Get(h)
				if !ok || v != i {
					t.Errorf("handle %d: %d %t", h, v, ok)
				}
				mu.Lock()
				if seen[h] || h == 0 {
					t.Errorf("handle %d twice", h)
				}
				seen[h] = true
				mu.Unlock()
				r.Remove(h)
				if _, ok := r.Get(h); ok {
					t.Errorf("handle %d is still there", h)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, r.Len())
}

func bytesOf(f cork.Frame) string { return string(f.Head) + string(f.Body) }

func event(size int) (*hub.Event, []byte) {
	raw := []byte(`{"content":"` + strings.Repeat("x", size) + `"}`)
	return hub.NewEvent(&commonv1.Envelope{Raw: raw}), raw
}

// Whoever asks, and however often an id is asked for, the bytes are those of the events one by one.
func TestFramesAreShared(t *testing.T) {
	many := make([]int, 300)
	for i := range many {
		many[i] = 10 * i
	}
	for name, sizes := range map[string][]int{
		"small": {10}, "of two bytes' length": {300}, "large": {100_000}, "several": {10, 300, 20}, "with a large one": {10, 100_000, 20}, "many": many,
	} {
		t.Run(name, func(t *testing.T) {
			run, want := hub.NewRun(), map[string]string{}
			ids := []string{"a", "b", `q"uote`}
			for _, size := range sizes {
				ev, raw := event(size)
				run.Add(ev)
				for _, id := range ids {
					want[id] += bytesOf(hub.Stored(hub.Prefix(id), raw))
				}
			}
			require.Len(t, run.Events(), len(sizes))
			for _, id := range []string{"a", "b", "a", "a", "b", `q"uote`, "a"} {
				var got strings.Builder
				count := 0
				for _, f := range run.Frames(id, hub.Prefix(id)) {
					require.True(t, f.Count() == 1 || f.Size() <= 32<<10)
					require.LessOrEqual(t, f.Count(), 64)
					got.WriteString(bytesOf(f))
					count += f.Count()
				}
				require.Equal(t, want[id], got.String())
				require.Equal(t, len(sizes), count)
			}
			one, two := run.Frames("a", hub.Prefix("a")), run.Frames("a", hub.Prefix("a"))
			require.Same(t, &one[0].Head[0], &two[0].Head[0], "one sub id, the same frames")
			other := run.Frames("never seen", hub.Prefix("never seen"))
			require.Same(t, &run.Events()[0].Fresh(nil).Body[0], &other[0].Body[0], "the event's bytes are not copied")
		})
	}
	require.JSONEq(t, `["EVENT","s",{"id":1}]`, string(hub.Stored(hub.Prefix("s"), []byte(`{"id":1}`)).Head[2:]))
}

func TestTheOldestTransactionOfARun(t *testing.T) {
	run := hub.NewRun()
	for _, step := range []struct{ xid, oldest uint64 }{{0, 0}, {7, 7}, {9, 7}, {0, 7}, {5, 5}} {
		run.Add(hub.NewEvent(&commonv1.Envelope{Header: &commonv1.Header{CommitXid: step.xid}, Raw: []byte("{}")}))
		require.Equal(t, step.oldest, run.Oldest())
	}
}

// member leaves some time after it was told to.
type member struct {
	conns *hub.Conns
	slow  time.Duration
	told  time.Time
	wg    *sync.WaitGroup
}

func (m *member) Restart() {
	m.told = time.Now()
	m.wg.Go(func() {
		timer := time.NewTimer(m.slow)
		<-timer.C
		m.conns.Leave(m)
		m.conns.Release()
	})
}
func (m *member) Kill() {}

func fill(t *testing.T, c *hub.Conns, n int, wg *sync.WaitGroup) []*member {
	t.Helper()
	var all []*member
	for range n {
		require.Equal(t, hub.Admitted, c.Reserve())
		m := &member{conns: c, slow: time.Second, wg: wg}
		require.True(t, c.Join(m))
		all = append(all, m)
	}
	return all
}

func TestPlacesAreLimited(t *testing.T) {
	c := hub.NewConns(2)
	require.Equal(t, hub.Admitted, c.Reserve())
	require.Equal(t, hub.Admitted, c.Reserve())
	require.Equal(t, hub.Full, c.Reserve())
	c.Release()
	require.Equal(t, hub.Admitted, c.Reserve())
	c.Refuse()
	require.Equal(t, hub.Draining, c.Reserve())
	require.False(t, c.Join(&member{}))
	c.Release()
	select {
	case <-c.Empty():
		require.Fail(t, "one is left")
	default:
	}
	c.Release()
	<-c.Empty()
}

func TestDrainSpreadsOverTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hub.NewConns(0)
		var wg sync.WaitGroup
		all := fill(t, c, 1000, &wg)
		began := time.Now()
		c.Drain(t.Context(), 20*time.Second)
		require.Equal(t, hub.Draining, c.Reserve())
		perSecond := make(map[int]int)
		for _, m := range all {
			perSecond[int(m.told.Sub(began)/time.Second)]++
		}
		require.LessOrEqual(t, len(perSecond), 21)
		for s, n := range perSecond {
			require.LessOrEqual(t, n, 100, "second %d", s)
		}
		require.GreaterOrEqual(t, len(perSecond), 19)
		require.Zero(t, c.Len())
		wg.Wait()
	})
}

func TestDrainEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hub.NewConns(0)
		var wg sync.WaitGroup
		fill(t, c, 100, &wg)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		c.Drain(ctx, time.Minute)
		require.Equal(t, 2*time.Second, time.Since(began))
		wg.Wait()
	})
}

func TestDrainOfNobody(t *testing.T) {
	c := hub.NewConns(0)
	c.Drain(t.Context(), time.Hour)
	<-c.Empty()
}
