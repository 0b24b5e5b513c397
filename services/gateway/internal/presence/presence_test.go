package presence

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/apiary-relay/apiary/pkg/nostr"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ingest remembers what was reported; while down is set it fails after it has.
type ingest struct {
	mu      sync.Mutex
	down    bool
	present map[nostr.PubKey]bool
	reports []int         // the size of each
	last    []time.Time   // of the reports of the key 1
	block   chan struct{} // when set, a report waits for it
}

func (i *ingest) ReportSessions(
	_ context.Context, req *ingestv1.ReportSessionsRequest, _ ...grpc.CallOption,
) (*ingestv1.ReportSessionsResponse, error) {
	i.mu.Lock()
	block := i.block
	i.mu.Unlock()
	if block != nil {
		<-block
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reports = append(i.reports, len(req.GetSessions()))
	for _, s := range req.GetSessions() {
		k := nostr.PubKey(s.GetPubkey())
		if s.GetGone() {
			delete(i.present, k)
		} else {
			i.present[k] = true
		}
		if k == key(1) {
			i.last = append(i.last, time.Now())
		}
	}
	if i.down {
		return nil, errors.New("down")
	}
	return &ingestv1.ReportSessionsResponse{Ttl: durationpb.New(30 * time.Second)}, nil
}

func (i *ingest) fail(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

func (i *ingest) has(n int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.present[key(n)]
}

func key(n int) nostr.PubKey { return nostr.PubKey{byte(n), byte(n >> 8), 1} }

// run runs a roster in a bubble until the test ends.
func run(t *testing.T, test func(r *Roster, i *ingest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		i := &ingest{present: make(map[nostr.PubKey]bool)}
		r := New(Config{
			Gateway: "G", Page: 10, Pause: 100 * time.Millisecond, Retry: time.Second, Timeout: time.Second, Refresh: time.Minute,
		}, i, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })
		synctest.Wait()
		test(r, i)
		cancel()
		running.Wait()
	})
}

// settled lets d pass and waits until everything has come of it.
func settled(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestAKeyIsPresentWhileItHasConnections(t *testing.T) {
	t.Parallel()
	run(t, func(r *Roster, i *ingest) {
		r.Join(1, key(1))
		synctest.Wait()
		require.True(t, i.has(1), "at once")
		r.Join(1, key(1))
		r.Leave(1, key(1))
		settled(time.Second)
		require.True(t, i.has(1))
		r.Leave(1, key(1))
		r.Leave(1, key(1)) // once too often
		settled(time.Second)
		require.False(t, i.has(1))
		require.Empty(t, r.users)
		require.Equal(t, []int{1, 1}, i.reports)
		r.Join(1, key(1))
		r.Leave(1, key(1))
		settled(time.Second)
		require.Equal(t, []int{1, 1}, i.reports, "a connection that ended before it was reported is nobody's business")
		require.Empty(t, r.users)
	})
}

func TestKeysAreReportedAgain(t *testing.T) {
	t.Parallel()
	run(t, func(r *Roster, i *ingest) {
		r.Join(1, key(1))
		settled(35 * time.Second)
		require.Len(t, i.last, 4, "a third of the time that ingest remembers it for")
		for n := range 3 {
			require.InDelta(t, 10, i.last[n+1].Sub(i.last[n]).Seconds(), 0.5)
		}
		i.fail(true)
		settled(30 * time.Second)
		require.Greater(t, len(i.last), 20, "what has failed is tried again soon")
		i.fail(false)
		r.Leave(1, key(1))
		settled(2 * time.Second)
		require.False(t, i.has(1))
	})
}

func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	run(t, func(r *Roster, i *ingest) {
		for n := range 95 {
			r.Join(1, key(n))
		}
		settled(10 * time.Second)
		require.LessOrEqual(t, slices.Max(i.reports), 10)
		require.Len(t, i.present, 95)
		before := len(i.reports)
		for n := range 1000 {
			r.Leave(1, key(5))
			r.Join(1, key(5))
			if n%100 == 0 {
				settled(10 * time.Millisecond)
			}
		}
		settled(time.Second)
		require.LessOrEqual(t, len(i.reports)-before, 13, "one each pause, whatever happens")
		require.True(t, i.has(5))
	})
}

func TestWhatChangesDuringAReportIsReportedAfterIt(t *testing.T) {
	t.Parallel()
	run(t, func(r *Roster, i *ingest) {
		i.block = make(chan struct{})
		r.Join(1, key(1))
		synctest.Wait()
		r.Leave(1, key(1))
		r.Join(1, key(2))
		close(i.block)
		settled(time.Second)
		require.False(t, i.has(1))
		require.True(t, i.has(2))
		require.Len(t, r.users, 1)
	})
}

func TestAGatewayThatLeavesTellsNoDepartures(t *testing.T) {
	t.Parallel()
	run(t, func(r *Roster, i *ingest) {
		r.Join(1, key(1))
		r.Join(1, key(2))
		settled(time.Second)
		r.Withhold()
		r.Leave(1, key(1))
		settled(25 * time.Second)
		require.True(t, i.has(1), "it expires, unless it has come back elsewhere")
		require.Less(t, i.last[len(i.last)-1].Sub(i.last[0]), time.Second)
		require.Len(t, r.users, 1)
	})
}
