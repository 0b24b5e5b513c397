package bus_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
	"github.com/apiary-relay/apiary/pkg/testkit/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon bounds what should happen at once, on a machine that is busy with other things.
const soon = 30 * time.Second

func connected(t *testing.T, b *bus.Bus) {
	t.Helper()
	deadline := time.After(soon)
	for {
		changed := b.Changed()
		if b.Connected() {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			require.FailNow(t, "not connected")
		}
	}
}

func disconnected(t *testing.T, b *bus.Bus) {
	t.Helper()
	deadline := time.After(soon)
	for {
		changed := b.Changed()
		if !b.Connected() {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			require.FailNow(t, "still connected")
		}
	}
}

// publish stores n messages "from".."from+n-1" and returns their sequences. Like the outbox, it tries
// again when the connection turns out to be lost.
func publish(t *testing.T, b *bus.Bus, subject string, from, n int) []uint64 {
	t.Helper()
	var sequences []uint64
	for i := from; i < from+n; i++ {
		id := rand.Text()
		for {
			changed := b.Changed()
			ack, err := b.Publish(t.Context(), subject, id, fmt.Append(nil, i))
			if err == nil {
				sequences = append(sequences, ack.Sequence)
				break
			}
			require.True(t, errors.Is(err, bus.ErrDisconnected) || errors.Is(err, bus.ErrUnacknowledged), "%v", err)
			if !b.Connected() {
				await(t, changed)
			}
		}
	}
	return sequences
}

func TestConnectDoesNotWait(t *testing.T) {
	t.Parallel()
	s := bustest.New(t, bustest.Listening())
	s.Stop(t)
	cfg := bustest.Config()
	cfg.URL = config.NewSecret(s.URL())
	b := s.ConnectWith(t, cfg)
	require.False(t, b.Connected())
	_, err := b.Publish(t.Context(), subject.Events(1), "", nil)
	require.ErrorIs(t, err, bus.ErrDisconnected)
	require.ErrorIs(t, b.EnsureStreams(t.Context(), bus.StreamOptions{}), bus.ErrDisconnected)
	s.Restart(t)
	connected(t, b)
	bustest.EnsureStreams(t, b)
	publish(t, b, subject.Events(1), 0, 1)
}

func TestURLsAreChecked(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"nats://127.0.0.1:4222":            "",
		"host":                             "",
		"nats://me:secret@a:1, tls://b":    "",
		"http://host:4222":                 `scheme "http" is not nats, tls, ws or wss`,
		"nats://me:secret@host:x":          `invalid port ":x" after host`,
		"nats://me:secret@:4222":           "no host",
		"nats://a:4222,nats://me:secret@,": "url 2 of url is not one of NATS, such as nats://host:4222: no host",
		"nats://a:4222,nats://b:4222,\x7f": "url 3 of url",
	} {
		cfg := bustest.Config()
		cfg.URL = config.NewSecret(url)
		err := cfg.Validate()
		if want == "" {
			require.NoError(t, err, url)
			continue
		}
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
	cfg := bustest.Config()
	cfg.URL = config.Secret{}
	_, err := bus.Connect(t.Context(), cfg, bus.Options{Log: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "no url")
}

func TestConnectRefusesBadConfiguration(t *testing.T) {
	t.Parallel()
	good := bustest.Config()
	for name, change := range map[string]func(*bus.Config){
		"in flight": func(c *bus.Config) { c.MaxInFlight = 0 },
		"ping":      func(c *bus.Config) { c.PingInterval = 0 },
		"ack":       func(c *bus.Config) { c.AckTimeout = -1 },
		"url":       func(c *bus.Config) { c.URL = config.NewSecret("nats://bad host:x") },
	} {
		cfg := good
		change(&cfg)
		_, err := bus.Connect(t.Context(), cfg, bus.Options{Log: slog.New(slog.DiscardHandler)})
		require.Error(t, err, name)
	}
}

func TestPublish(t *testing.T) {
	t.Parallel()
	b := bustest.NewBus(t)
	first, err := b.Publish(t.Context(), subject.Events(1), "id-1", []byte("x"))
	require.NoError(t, err)
	require.Equal(t, bus.Ack{Stream: subject.StreamEvents, Sequence: 1}, first)
	again, err := b.Publish(t.Context(), subject.Events(1), "id-1", []byte("x"))
	require.NoError(t, err)
	require.Equal(t, bus.Ack{Stream: subject.StreamEvents, Sequence: 1, Duplicate: true}, again)
	other, err := b.Publish(t.Context(), subject.Ephemeral(63), "id-1", []byte("x"))
	require.NoError(t, err)
	require.Equal(t, bus.Ack{Stream: subject.StreamEphemeral, Sequence: 1}, other)

	_, err = b.Publish(t.Context(), "nobody.takes.this", "", nil)
	require.ErrorIs(t, err, bus.ErrNoStream)
	_, err = b.Publish(t.Context(), subject.Events(1), "", make([]byte, b.MaxPayload()+1))
	require.ErrorIs(t, err, bus.ErrTooLarge)
	_, err = b.StreamState(t.Context(), "NONE")
	require.ErrorIs(t, err, bus.ErrNoStream)
}

func TestPublishAsyncKeepsOrder(t *testing.T) {
	t.Parallel()
	b := bustest.NewBus(t)
	var futures []*bus.Future
	for i := range 1000 {
		f, err := b.PublishAsync(t.Context(), subject.Events(1), fmt.Sprint("id-", i), fmt.Append(nil, i))
		require.NoError(t, err)
		futures = append(futures, f)
	}
	for i, f := range futures {
		ack, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, uint64(i+1), ack.Sequence)
	}
	state, err := b.StreamState(t.Context(), subject.StreamEvents)
	require.NoError(t, err)
	require.Equal(t, uint64(1), state.FirstSeq)
	require.Equal(t, uint64(1000), state.LastSeq)
	require.Equal(t, uint64(1000), state.Messages)
	require.NotZero(t, state.Epoch)
}

func TestPublishFailsAtOnceWithoutServer(t *testing.T) {
	t.Parallel()
	s := bustest.New(t)
	b := s.Connect(t)
	bustest.EnsureStreams(t, b)
	s.Stop(t)
	disconnected(t, b)
	began := time.Now()
	_, err := b.Publish(t.Context(), subject.Events(1), "id", []byte("x"))
	require.ErrorIs(t, err, bus.ErrDisconnected)
	require.ErrorIs(t, b.Notify(t.Context(), subject.Control(1), nil), bus.ErrDisconnected)
	require.Less(t, time.Since(began), time.Second)
	s.Restart(t)
	connected(t, b)
	ack, err := b.Publish(t.Context(), subject.Events(1), "id", []byte("x"))
	require.NoError(t, err)
	require.False(t, ack.Duplicate, "a publish that failed at once must not have been kept somewhere")
}

func TestPublishInFlightIsBounded(t *testing.T) {
	t.Parallel()
	s := bustest.New(t, bustest.Listening())
	proxy := faultproxy.New(t, strings.TrimPrefix(s.URL(), "nats://"))
	cfg := bustest.Config()
	cfg.URL = config.NewSecret("nats://" + proxy.Addr())
	cfg.MaxInFlight, cfg.AckTimeout, cfg.PingInterval = 2, soon, soon
	b := s.ConnectWith(t, cfg)
	connected(t, b)
	bustest.EnsureStreams(t, b)
	proxy.Blackhole()
	var waiting []*bus.Future
	for range 2 {
		f, err := b.PublishAsync(t.Context(), subject.Events(1), "", []byte("x"))
		require.NoError(t, err)
		waiting = append(waiting, f)
	}
	cause := errors.New("gave up")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, cause)
	defer cancel()
	_, err := b.PublishAsync(ctx, subject.Events(1), "", []byte("x"))
	require.ErrorIs(t, err, cause)
	_, err = waiting[0].Wait(ctx)
	require.ErrorIs(t, err, cause)
	proxy.Heal()
	for _, f := range waiting {
		_, err := f.Wait(t.Context())
		require.NoError(t, err)
	}
}

func TestPublishUnacknowledged(t *testing.T) {
	t.Parallel()
	s := bustest.New(t, bustest.Listening())
	proxy := faultproxy.New(t, strings.TrimPrefix(s.URL(), "nats://"))
	cfg := bustest.Config()
	cfg.URL = config.NewSecret("nats://" + proxy.Addr())
	cfg.AckTimeout, cfg.PingInterval = 50*time.Millisecond, soon
	b := s.ConnectWith(t, cfg)
	connected(t, b)
	bustest.EnsureStreams(t, b)
	proxy.Blackhole()
	_, err := b.Publish(t.Context(), subject.Events(1), "", []byte("x"))
	require.ErrorIs(t, err, bus.ErrUnacknowledged)
	f, err := b.PublishAsync(t.Context(), subject.Events(1), "", []byte("x"))
	require.NoError(t, err)
	b.Close()
	_, err = f.Wait(t.Context())
	require.Error(t, err)
}

// A server that is there and does not answer, as one does whose cluster has not chosen a leader yet, is asked again soon: the
// caller is told so long before its own deadline.
func TestEnsureStreamsDoesNotWaitForALeader(t *testing.T) {
	t.Parallel()
	server := bustest.New(t, bustest.Listening())
	proxy := faultproxy.New(t, strings.TrimPrefix(server.URL(), "nats://"))
	cfg := bustest.Config()
	cfg.URL, cfg.PingInterval = config.NewSecret("nats://"+proxy.Addr()), time.Hour
	b := server.ConnectWith(t, cfg)
	connected(t, b)
	proxy.Blackhole()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	require.ErrorIs(t, b.EnsureStreams(ctx, bus.StreamOptions{}), bus.ErrUnacknowledged)
	require.NoError(t, ctx.Err())
	proxy.Heal()
	require.NoError(t, b.EnsureStreams(ctx, bus.StreamOptions{}))
}

func TestEnsureStreams(t *testing.T) {
	t.Parallel()
	s := bustest.New(t)
	b := s.Connect(t)
	failed := make(chan error, 4)
	for range cap(failed) {
		go func() { failed <- b.EnsureStreams(t.Context(), bus.StreamOptions{}) }()
	}
	for range cap(failed) {
		require.NoError(t, <-failed)
	}
	publish(t, b, subject.Events(1), 0, 1)
	require.NoError(t, b.EnsureStreams(t.Context(), bus.StreamOptions{EventsMaxBytes: 1 << 20}))
	stream, err := b.JetStream().Stream(t.Context(), subject.StreamEvents)
	require.NoError(t, err)
	require.Equal(t, int64(1<<20), stream.CachedInfo().Config.MaxBytes)
	require.Equal(t, uint64(1), stream.CachedInfo().State.Msgs)
	require.Equal(t, 24*time.Hour, stream.CachedInfo().Config.MaxAge)
	require.ErrorIs(t, b.EnsureStreams(t.Context(), bus.StreamOptions{Partitions: 32}), bus.ErrPartitions)
}

func TestTraceTravels(t *testing.T) {
	t.Parallel()
	b := bustest.NewBus(t)
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), parent)
	_, err := b.Publish(ctx, subject.Events(1), "", nil)
	require.NoError(t, err)
	var got trace.SpanContext
	err = b.ConsumeOrdered(t.Context(), subject.StreamEvents, subject.Events(1), 1, func(ctx context.Context, _ bus.Msg) error {
		got = trace.SpanContextFromContext(ctx)
		return bus.ErrStop
	})
	require.NoError(t, err)
	require.Equal(t, parent.TraceID(), got.TraceID())
	require.Equal(t, parent.SpanID(), got.SpanID())
	require.True(t, got.IsRemote())
}

func TestListen(t *testing.T) {
	t.Parallel()
	s := bustest.New(t)
	b, other := s.Connect(t), s.Connect(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	heard, resynced, done := make(chan string, 10), make(chan bool, 10), make(chan error, 1)
	go func() {
		done <- b.Listen(ctx, subject.AllControl,
			func(_ context.Context, m bus.Msg) { heard <- m.Subject + " " + string(m.Data) },
			func(context.Context) { resynced <- true })
	}()
	<-resynced
	require.NoError(t, other.Notify(t.Context(), subject.Control(7), []byte("out")))
	require.Equal(t, "apiary.v1.control.7 out", <-heard)
	s.Restart(t)
	<-resynced
	connected(t, other)
	require.NoError(t, other.Notify(t.Context(), subject.Control(8), []byte("again")))
	require.Equal(t, "apiary.v1.control.8 again", <-heard)
	over := errors.New("over")
	cancel(over)
	require.ErrorIs(t, <-done, over)
}
