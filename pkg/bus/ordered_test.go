package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
	"github.com/apiary-relay/apiary/pkg/testkit/faultproxy"
)

// follower consumes one subject in a goroutine and tells the test what it is told.
type follower struct {
	messages  chan bus.Msg
	gaps      chan bus.Gap
	recreated chan bus.Recreated
	progress  chan uint64
	done      chan error
	stop      context.CancelCauseFunc
}

var errTestOver = errors.New("test is over")

// follow begins at startSeq. hold, when not nil, is received from before each message is taken.
func follow(t *testing.T, b *bus.Bus, stream, subject string, startSeq uint64, hold <-chan struct{}, opts ...bus.OrderedOption) *follower {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	f := &follower{
		messages: make(chan bus.Msg, 100_000), gaps: make(chan bus.Gap, 100), recreated: make(chan bus.Recreated, 100),
		progress: make(chan uint64, 100_000), done: make(chan error, 1), stop: cancel,
	}
	opts = append([]bus.OrderedOption{
		bus.WithCheckEvery(50 * time.Millisecond),
		bus.OnGap(func(_ context.Context, g bus.Gap) error { f.gaps <- g; return nil }),
		bus.OnRecreated(func(_ context.Context, r bus.Recreated) error { f.recreated <- r; return nil }),
		bus.OnProgress(func(_ context.Context, _, seq uint64) error { f.progress <- seq; return nil }),
	}, opts...)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.done <- b.ConsumeOrdered(ctx, stream, subject, startSeq, func(ctx context.Context, m bus.Msg) error {
			if hold != nil {
				select {
				case <-hold:
				case <-ctx.Done():
				}
			}
			f.messages <- m
			return ctx.Err() // as a handler does that waits for something
		}, opts...)
	}()
	t.Cleanup(func() {
		cancel(errTestOver)
		<-ended
	})
	return f
}

func (f *follower) next(t *testing.T) bus.Msg {
	t.Helper()
	select {
	case m := <-f.messages:
		return m
	case err := <-f.done:
		require.FailNow(t, "consumption ended", "%v", err)
	case <-time.After(soon):
		require.FailNow(t, "no message")
	}
	return bus.Msg{}
}

func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	var v T
	select {
	case v = <-c:
	case <-time.After(soon):
		require.FailNow(t, "nothing happened")
	}
	return v
}

// requireNumbers takes the messages from..from+n-1, in order and without a repeat.
func (f *follower) requireNumbers(t *testing.T, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		require.Equal(t, strconv.Itoa(i), string(f.next(t).Data))
	}
}

func TestOrderedOverRestarts(t *testing.T) {
	t.Parallel()
	for name, listening := range map[string]bool{"in process": false, "over TCP": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var opts []bustest.Option
			cfg := bustest.Config()
			if listening {
				opts = append(opts, bustest.Listening())
			}
			s := bustest.New(t, opts...)
			if listening {
				cfg.URL = config.NewSecret(s.URL())
			}
			b := s.ConnectWith(t, cfg)
			connected(t, b)
			bustest.EnsureStreams(t, b)
			f := follow(t, b, subject.StreamEvents, subject.Events(5), 1, nil)
			sent := 0
			for range 4 {
				publish(t, b, subject.Events(5), sent, 40)
				publish(t, b, subject.Events(6), sent, 40)
				f.requireNumbers(t, sent, 20) // the others are on their way when the server goes
				s.Restart(t)
				connected(t, b)
				f.requireNumbers(t, sent+20, 20)
				sent += 40
			}
			publish(t, b, subject.Events(5), sent, 1)
			m := f.next(t)
			require.Equal(t, strconv.Itoa(sent), string(m.Data))
			require.Equal(t, uint64(2*sent+1), m.Sequence)
			require.Equal(t, subject.Events(5), m.Subject)
			state, err := b.StreamState(t.Context(), subject.StreamEvents)
			require.NoError(t, err)
			require.Equal(t, state.Epoch, m.Epoch)
			require.Empty(t, f.messages)
			require.Empty(t, f.gaps)
			require.Empty(t, f.recreated)
		})
	}
}

func TestOrderedOverLostConnections(t *testing.T) {
	t.Parallel()
	s := bustest.New(t, bustest.Listening())
	proxy := faultproxy.New(t, strings.TrimPrefix(s.URL(), "nats://"))
	cfg := bustest.Config()
	cfg.URL = config.NewSecret("nats://" + proxy.Addr())
	cfg.PingInterval = 100 * time.Millisecond
	far, near := s.ConnectWith(t, cfg), s.Connect(t)
	bustest.EnsureStreams(t, near)
	f := follow(t, far, subject.StreamEvents, subject.Events(5), 1, nil)
	publish(t, near, subject.Events(5), 0, 10)
	f.requireNumbers(t, 0, 10)
	for i, fault := range []func(){proxy.Cut, proxy.Reset, proxy.Blackhole} {
		fault()
		publish(t, near, subject.Events(5), 10+10*i, 5)
		if i != 1 {
			disconnected(t, far)
		}
		publish(t, near, subject.Events(5), 15+10*i, 5)
		proxy.Heal()
		f.requireNumbers(t, 10+10*i, 10)
	}
	require.Empty(t, f.gaps)
}

func TestOrderedWaitsForStream(t *testing.T) {
	t.Parallel()
	b := bustest.New(t).Connect(t)
	f := follow(t, b, subject.StreamEvents, subject.Events(1), 1, nil)
	bustest.EnsureStreams(t, b)
	publish(t, b, subject.Events(1), 0, 3)
	f.requireNumbers(t, 0, 3)
}

func TestOrderedStartsWhereAsked(t *testing.T) {
	t.Parallel()
	b := bustest.NewBus(t)
	sequences := publish(t, b, subject.Events(1), 0, 10)
	f := follow(t, b, subject.StreamEvents, subject.Events(1), sequences[6], nil)
	f.requireNumbers(t, 6, 4)
	live := follow(t, b, subject.StreamEvents, subject.Events(1), sequences[9]+1, nil)
	publish(t, b, subject.Events(1), 10, 1)
	f.requireNumbers(t, 10, 1)
	live.requireNumbers(t, 10, 1)
}

// requireAccounted waits until everything up to last is certain, and makes sure that each message of mine
// was handled, once and in order, or told to be lost. It returns the gaps.
func (f *follower) requireAccounted(t *testing.T, last uint64, mine func(uint64) bool) []bus.Gap {
	t.Helper()
	for await(t, f.progress) < last {
	}
	f.stop(errTestOver)
	require.ErrorIs(t, await(t, f.done), errTestOver)
	close(f.messages)
	close(f.gaps)
	known := make(map[uint64]bool)
	var before uint64
	for m := range f.messages {
		require.Greater(t, m.Sequence, before)
		before = m.Sequence
		known[m.Sequence] = true
	}
	var gaps []bus.Gap
	for g := range f.gaps {
		gaps = append(gaps, g)
		for seq := g.From; seq <= g.To; seq++ {
			known[seq] = true
		}
	}
	for seq := uint64(1); seq <= last; seq++ {
		require.True(t, known[seq] || !mine(seq), "message %d was skipped", seq)
	}
	return gaps
}

func TestOrderedTellsPurge(t *testing.T) {
	t.Parallel()
	b := bustest.NewBus(t)
	hold := make(chan struct{})
	f := follow(t, b, subject.StreamEvents, subject.Events(1), 1, hold)
	publish(t, b, subject.Events(1), 0, 1000) // more than a consumer buffers
	hold <- struct{}{}
	stream, err := b.JetStream().Stream(t.Context(), subject.StreamEvents)
	require.NoError(t, err)
	require.NoError(t, stream.Purge(t.Context()))
	publish(t, b, subject.Events(1), 1000, 3)
	close(hold)
	gaps := f.requireAccounted(t, 1003, func(uint64) bool { return true })
	require.Len(t, gaps, 1)
	require.Equal(t, subject.StreamEvents, gaps[0].Stream)
	require.Equal(t, subject.Events(1), gaps[0].Subject)
	require.GreaterOrEqual(t, gaps[0].To, uint64(1000))
}

// TestOrderedTellsPurgeOfTheNewest purges what has just been published to a consumer that keeps up.
func TestOrderedTellsPurgeOfTheNewest(t *testing.T) {
	t.Parallel()
	b := bustest.NewBus(t)
	f := follow(t, b, subject.StreamEvents, subject.Events(1), 1, nil)
	stream, err := b.JetStream().Stream(t.Context(), subject.StreamEvents)
	require.NoError(t, err)
	for i := range 20 {
		_, err := b.PublishAsync(t.Context(), subject.Events(1), "", nil)
		require.NoError(t, err)
		require.NoError(t, stream.Purge(t.Context()))
		publish(t, b, subject.Events(1), i, 1)
	}
	f.requireAccounted(t, 40, func(uint64) bool { return true })
}

// TestOrderedTellsOverrun lets a stream's limits overtake a consumer again and again.
func TestOrderedTellsOverrun(t *testing.T) {
	t.Parallel()
	const run = 50 // messages of one subject come in runs of 50
	b := bustest.New(t).Connect(t)
	_, err := b.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "SMALL", Subjects: []string{"small.*"}, Storage: jetstream.MemoryStorage, MaxMsgs: 4 * run,
	})
	require.NoError(t, err)
	hold := make(chan struct{}, 1000)
	f := follow(t, b, "SMALL", "small.mine", 1, hold)
	sent := 0
	for range 4 {
		for range 10 { // the stream keeps a fifth of this
			publish(t, b, "small.mine", sent, run)
			publish(t, b, "small.other", sent, run)
			sent += run
		}
		for range 20 {
			hold <- struct{}{}
		}
	}
	close(hold)
	publish(t, b, "small.mine", sent, 1)
	gaps := f.requireAccounted(t, uint64(2*sent+1), func(seq uint64) bool { return (seq-1)/run%2 == 0 })
	require.NotEmpty(t, gaps)
}

func TestOrderedWithoutCallbacksFails(t *testing.T) {
	t.Parallel()
	b := bustest.NewBus(t)
	publish(t, b, subject.Events(1), 0, 5)
	stream, err := b.JetStream().Stream(t.Context(), subject.StreamEvents)
	require.NoError(t, err)
	require.NoError(t, stream.Purge(t.Context()))
	never := func(context.Context, bus.Msg) error { return errors.New("handled") }

	err = b.ConsumeOrdered(t.Context(), subject.StreamEvents, subject.Events(1), 2, never)
	var gap *bus.GapError
	require.ErrorAs(t, err, &gap)
	require.Equal(t, uint64(2), gap.Gap.From)
	require.Equal(t, uint64(5), gap.Gap.To)

	var recreated *bus.RecreatedError
	err = b.ConsumeOrdered(t.Context(), subject.StreamEvents, subject.Events(1), 2, never, bus.WithEpoch(1))
	require.ErrorAs(t, err, &recreated)
	require.Equal(t, uint64(1), recreated.Recreated.OldEpoch)
	err = b.ConsumeOrdered(t.Context(), subject.StreamEvents, subject.Events(1), 99, never)
	require.ErrorAs(t, err, &recreated)
	require.Equal(t, recreated.Recreated.OldEpoch, recreated.Recreated.NewEpoch)
	require.Equal(t, uint64(6), recreated.Recreated.Next)
}

func TestOrderedTellsRecreation(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *bustest.Server, *bus.Bus){
		"stream deleted": func(t *testing.T, _ *bustest.Server, b *bus.Bus) {
			t.Helper()
			require.NoError(t, b.JetStream().DeleteStream(t.Context(), subject.StreamEvents))
		},
		"disk lost": func(t *testing.T, s *bustest.Server, b *bus.Bus) {
			t.Helper()
			s.RestartEmpty(t)
			connected(t, b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bustest.New(t)
			b := s.Connect(t)
			bustest.EnsureStreams(t, b)
			old, err := b.StreamState(t.Context(), subject.StreamEvents)
			require.NoError(t, err)
			f := follow(t, b, subject.StreamEvents, subject.Events(1), 1, nil)
			publish(t, b, subject.Events(1), 0, 10)
			f.requireNumbers(t, 0, 10)
			lose(t, s, b)
			bustest.EnsureStreams(t, b)
			publish(t, b, subject.Events(1), 10, 20)
			r := await(t, f.recreated)
			require.Equal(t, old.Epoch, r.OldEpoch)
			require.NotEqual(t, old.Epoch, r.NewEpoch)
			require.Equal(t, uint64(10), r.Last)
			require.Equal(t, uint64(1), r.Next)
			f.requireNumbers(t, 10, 20)
			require.Empty(t, f.gaps)
		})
	}
}

func TestOrderedMemoryStreamIsRecreatedByRestart(t *testing.T) {
	t.Parallel()
	s := bustest.New(t)
	b := s.Connect(t)
	bustest.EnsureStreams(t, b)
	f := follow(t, b, subject.StreamEphemeral, subject.Ephemeral(1), 1, nil)
	publish(t, b, subject.Ephemeral(1), 0, 10)
	f.requireNumbers(t, 0, 10)
	s.Restart(t)
	connected(t, b)
	bustest.EnsureStreams(t, b)
	publish(t, b, subject.Ephemeral(1), 10, 2)
	f.requireNumbers(t, 10, 2)
	require.Len(t, f.recreated, 1)
}

func TestOrderedProgressOfQuietSubject(t *testing.T) {
	t.Parallel()
	b := bustest.NewBus(t)
	f := follow(t, b, subject.StreamEvents, subject.Events(1), 1, nil)
	publish(t, b, subject.Events(1), 0, 1)
	f.requireNumbers(t, 0, 1)
	sequences := publish(t, b, subject.Events(2), 0, 50)
	last := sequences[len(sequences)-1]
	for await(t, f.progress) < last {
	}
	// What the others wrote may go: nobody is missing anything.
	stream, err := b.JetStream().Stream(t.Context(), subject.StreamEvents)
	require.NoError(t, err)
	require.NoError(t, stream.Purge(t.Context()))
	publish(t, b, subject.Events(2), 50, 1)
	publish(t, b, subject.Events(1), 1, 1)
	f.requireNumbers(t, 1, 1)
	for await(t, f.progress) < last+2 {
	}
	require.Empty(t, f.gaps)
}

func TestOrderedEnds(t *testing.T) {
	t.Parallel()
	b := bustest.NewBus(t)
	publish(t, b, subject.Events(1), 0, 3)
	consume := func(ctx context.Context, handle func(context.Context, bus.Msg) error) error {
		return b.ConsumeOrdered(ctx, subject.StreamEvents, subject.Events(1), 1, handle)
	}
	bad := errors.New("bad message")
	require.ErrorIs(t, consume(t.Context(), func(context.Context, bus.Msg) error { return bad }), bad)
	require.NoError(t, consume(t.Context(), func(context.Context, bus.Msg) error { return fmt.Errorf("enough: %w", bus.ErrStop) }))
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := consume(ctx, func(_ context.Context, m bus.Msg) error {
		if m.Pending == 0 {
			cancel(over)
		}
		return nil
	})
	require.ErrorIs(t, err, over)
	// Ended consumers do not stay at the server.
	stream, err := b.JetStream().Stream(t.Context(), subject.StreamEvents)
	require.NoError(t, err)
	require.Zero(t, stream.CachedInfo().State.Consumers)
}

func TestReplay(t *testing.T) {
	t.Parallel()
	b := bustest.NewBus(t)
	var mine []uint64
	for i := range 300 {
		mine = append(mine, publish(t, b, subject.Events(1), i, 1)...)
		publish(t, b, subject.Events(2), i, 2)
	}
	replay := func(from, to uint64, opts ...bus.OrderedOption) ([]uint64, error) {
		var got []uint64
		err := b.Replay(t.Context(), subject.StreamEvents, subject.Events(1), from, to, func(_ context.Context, m bus.Msg) error {
			got = append(got, m.Sequence)
			return nil
		}, opts...)
		return got, err
	}
	for name, c := range map[string]struct {
		from, to uint64
		want     []uint64
	}{
		"everything":      {1, 900, mine},
		"a part":          {mine[10], mine[20], mine[10:21]},
		"between":         {mine[10] + 1, mine[12] - 1, mine[11:12]},
		"only of others":  {mine[10] + 1, mine[10] + 2, nil},
		"others at end":   {mine[299] + 1, 900, nil},
		"nothing":         {5, 4, nil},
		"one":             {mine[7], mine[7], mine[7:8]},
		"last with tail":  {mine[299], 900, mine[299:]},
		"from before one": {0, 1, mine[:1]},
	} {
		got, err := replay(c.from, c.to)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	_, err := replay(1, 901)
	require.ErrorContains(t, err, "ends at 900")
	_, err = replay(1, 10, bus.WithEpoch(1))
	var recreated *bus.RecreatedError
	require.ErrorAs(t, err, &recreated)

	stream, err := b.JetStream().Stream(t.Context(), subject.StreamEvents)
	require.NoError(t, err)
	require.NoError(t, stream.Purge(t.Context(), jetstream.WithPurgeSequence(mine[100])))
	_, err = replay(mine[50], mine[110])
	var gap *bus.GapError
	require.ErrorAs(t, err, &gap)
	require.Equal(t, mine[50], gap.Gap.From)
	require.Equal(t, mine[100]-1, gap.Gap.To)
	pass := bus.OnGap(func(context.Context, bus.Gap) error { return nil })
	got, err := replay(mine[50], mine[110], pass)
	require.NoError(t, err)
	require.Equal(t, mine[100:111], got)
	got, err = replay(mine[50], mine[60], pass)
	require.NoError(t, err)
	require.Empty(t, got)
}

// TestOrderedChecksDoNotSkip checks as often as it can while messages of two subjects are stored.
func TestOrderedChecksDoNotSkip(t *testing.T) {
	t.Parallel()
	const messages = 3000
	b := bustest.NewBus(t)
	f := follow(t, b, subject.StreamEvents, subject.Events(1), 1, nil, bus.WithCheckEvery(5*time.Millisecond))
	for i := range messages {
		_, err := b.PublishAsync(t.Context(), subject.Events(1), "", fmt.Append(nil, i))
		require.NoError(t, err)
		_, err = b.PublishAsync(t.Context(), subject.Events(2), "", nil)
		require.NoError(t, err)
	}
	f.requireNumbers(t, 0, messages)
	require.Empty(t, f.gaps)
}
