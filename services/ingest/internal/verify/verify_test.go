package verify_test

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
	"github.com/apiary-relay/apiary/services/ingest/internal/verify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(workers int) verify.Config {
	return verify.Config{
		Workers: workers, Wire: wire.DefaultLimits(), Policy: policy.Limits{Content: 1000, Skew: time.Minute},
		Now: func() time.Time { return time.Unix(nostrtest.Epoch, 0) },
	}
}

func submission(raw []byte) policy.Submission {
	return policy.Submission{Community: 1, Raw: raw, Principal: []nostr.PubKey{nostrtest.PubKey("alice")}}
}

func TestVerify(t *testing.T) {
	good := nostrtest.Raw(nostrtest.Event(t, "alice", nostrtest.Content("hello")))
	replace := func(from, to string) []byte {
		require.Contains(t, string(good), from)
		return []byte(strings.Replace(string(good), from, to, 1))
	}
	unsigned := nostrtest.Event(t, "alice", nostrtest.Kind(22242))
	unsigned.Sig = nostr.Sig{}
	cases := []struct {
		name string
		raw  []byte
		want string // empty: accepted
	}{
		{"good", good, ""},
		{"spaces do not matter", replace(`,"content"`, ` , "content"`), ""},
		{"changed content", replace("hello", "hullo"), nostr.ErrBadID.Error()},
		{"changed signature", replace(`"sig":"`+nostrtestSig(t, good)[:8], `"sig":"00000000`), nostr.ErrBadSignature.Error()},
		{"trailing bytes", append(append([]byte{}, good...), '{'), "*"},
		{"not JSON", []byte("hello"), "*"},
		{"empty", nil, "*"},
		{"kind before signature", nostrtest.Raw(unsigned), "AUTH events cannot be submitted"},
		{"signature before time", []byte(strings.Replace(string(nostrtest.Raw(nostrtest.Event(t, "alice", nostrtest.CreatedAt(5), nostrtest.Content("x")))), `"x"`, `"y"`, 1)), nostr.ErrBadID.Error()},
		{"content beyond policy, not beyond the frame", nostrtest.Raw(nostrtest.Event(t, "alice", nostrtest.Content(strings.Repeat("x", 1001)))), "content exceeds maximum size of 1000 bytes (got 1001)"},
	}

	// All cases wait in one queue, each between good ones, so that they are verified in batches.
	p := verify.New(config(1))
	var jobs []*verify.Job
	submit := func(raw []byte) {
		j := &verify.Job{Submission: submission(raw)}
		require.NoError(t, p.Submit(t.Context(), j))
		jobs = append(jobs, j)
	}
	for _, c := range cases {
		submit(good)
		submit(c.raw)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, p.Run(ctx, func() {}))

	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			require.True(t, jobs[2*i].Verdict.Accepted(), "the neighbour")
			candidate, v := jobs[2*i+1].Candidate, jobs[2*i+1].Verdict
			if c.want == "" {
				require.Equal(t, policy.Verdict{}, v)
				require.NotNil(t, candidate)
				require.Equal(t, string(c.raw), string(candidate.Raw))
				return
			}
			require.Nil(t, candidate)
			require.Equal(t, fault.Invalid, v.Reason)
			require.NotEmpty(t, v.Message)
			if c.want != "*" {
				require.Equal(t, c.want, v.Message)
			}
		})
	}
}

// What is in the object besides the seven fields is not signed, so it is not passed on.
func TestUnsignedKeysAreDropped(t *testing.T) {
	ev := nostrtest.Event(t, "alice", nostrtest.Content("a \" and a \x01"))
	raw := string(nostrtest.Raw(ev))
	p := verify.New(config(1))
	var jobs []*verify.Job
	for _, extra := range []string{`"verified":true,`, `"x":1,"x":2,`, `"":{"id":null},`, `"relays" : ["wss://elsewhere"] , `} {
		j := &verify.Job{Submission: submission([]byte(strings.Replace(raw, `"content"`, extra+`"content"`, 1)))}
		require.NoError(t, p.Submit(t.Context(), j))
		jobs = append(jobs, j)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, p.Run(ctx, func() {}))
	for _, j := range jobs {
		require.True(t, j.Verdict.Accepted(), j.Verdict.Message)
		require.Equal(t, string(ev.AppendJSON(nil)), string(j.Candidate.Raw))
	}
}

func nostrtestSig(t *testing.T, raw []byte) string {
	t.Helper()
	ev, err := wire.DecodeEvent(raw, wire.DefaultLimits())
	require.NoError(t, err)
	return ev.Sig.String()
}

func TestPool(t *testing.T) {
	cfg := config(3)
	var observed atomic.Int64
	cfg.Observe = func(context.Context, time.Duration) { observed.Add(1) }
	p := verify.New(cfg)

	// Not running, it takes a bounded number and then makes the caller wait.
	raw := nostrtest.Raw(nostrtest.Event(t, "alice"))
	var jobs []*verify.Job
	for {
		j := &verify.Job{Submission: submission(raw)}
		within, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := p.Submit(within, j)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			break
		}
		jobs = append(jobs, j)
	}
	require.Len(t, jobs, 3*64)

	// Told to stop, it finishes what it has taken.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, p.Run(ctx, func() {}))
	for _, j := range jobs {
		require.True(t, j.Verdict.Accepted())
	}
	require.EqualValues(t, len(jobs), observed.Load())
}

// TestLargeEventsHoldNobodyUp has a worker that never comes back from a large event, as far as others can tell, and others that wait
// for it: small ones are verified meanwhile.
func TestLargeEventsHoldNobodyUp(t *testing.T) {
	for _, workers := range []int{1, 2, 8} {
		cfg := config(workers)
		cfg.Policy.Content, cfg.Wire.Content = 1<<20, 1<<20
		p := verify.New(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx, func() {}) }()
		hold := make(chan struct{})
		large := nostrtest.Raw(nostrtest.Event(t, "alice", nostrtest.Content(strings.Repeat("x", 64<<10))))
		var later atomic.Int64
		for range 4 * workers {
			require.NoError(t, p.Submit(ctx, &verify.Job{Submission: submission(large), Done: func() {
				<-hold
				later.Add(1)
			}}))
		}
		done := make(chan struct{})
		require.NoError(t, p.Submit(ctx, &verify.Job{Submission: submission(nostrtest.Raw(nostrtest.Event(t, "bob"))), Done: func() { close(done) }}))
		<-done
		require.Zero(t, later.Load())
		close(hold)
		cancel()
		require.NoError(t, <-ended)
		require.EqualValues(t, 4*workers, later.Load())
	}
}

func BenchmarkVerify(b *testing.B) {
	p := verify.New(config(runtime.GOMAXPROCS(0)))
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx, func() {}) }()
	raws := make([][]byte, 64)
	for i := range raws {
		raws[i] = nostrtest.Raw(nostrtest.Event(b, "alice", nostrtest.Content(strconv.Itoa(i)+strings.Repeat("x", 300)), nostrtest.Tag("t", "x")))
	}
	var all sync.WaitGroup
	n := 0
	for b.Loop() {
		all.Add(1)
		_ = p.Submit(ctx, &verify.Job{Submission: submission(raws[n%len(raws)]), Done: all.Done})
		n++
	}
	all.Wait()
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
	cancel()
	<-done
}
