package hub_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/conn"
	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
	"github.com/apiary-relay/apiary/services/gateway/internal/hub"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

// recipient is one subscribed connection over TCP loopback, whose client reads and throws away.
type recipient struct {
	conn   *conn.Conn
	id     string
	prefix []byte
	room   chan struct{}
	begun  chan struct{} // closed when the client has been heard
}

func (r *recipient) Message(bool, []byte) { close(r.begun) }
func (r *recipient) TooBig([]byte)        {}
func (r *recipient) Room() {
	select {
	case r.room <- struct{}{}:
	default:
	}
}

type hijacked struct {
	*httptest.ResponseRecorder
	c net.Conn
}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.c, bufio.NewReadWriter(bufio.NewReader(h.c), bufio.NewWriter(h.c)), nil
}

// BenchmarkBroadcast delivers 500-byte events, in runs as they come from fan-out, to n connections through their
// writers. The clients' reading is part of what is measured: the timer stops when the last byte has been read.
func BenchmarkBroadcast(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		for _, ids := range []string{"one id", "own ids"} {
			for _, run := range []int{1, 8, 64} {
				b.Run(fmt.Sprintf("%d connections/%s/runs of %d", n, ids, run), func(b *testing.B) { broadcast(b, n, run, ids == "own ids") })
			}
		}
	}
}

func broadcast(b *testing.B, n, length int, ownIDs bool) {
	b.Helper()
	l, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer l.Close()
	m, err := metrics.New(noop.NewMeterProvider().Meter(""))
	require.NoError(b, err)
	read := &counter{done: make(chan struct{})}
	var wg sync.WaitGroup
	var all []*recipient
	for i := range n {
		client, err := new(net.Dialer).DialContext(b.Context(), "tcp", l.Addr().String())
		require.NoError(b, err)
		wg.Go(func() {
			_, _ = io.CopyBuffer(struct{ io.Writer }{read}, struct{ io.Reader }{client}, make([]byte, 64<<10))
		})
		defer client.Close()
		r := &recipient{id: "sub", room: make(chan struct{}, 1), begun: make(chan struct{})}
		if ownIDs {
			r.id = "sub" + strconv.Itoa(i)
		}
		r.prefix = hub.Prefix(r.id)
		r.accept(b, l, m)
		wg.Add(1)
		r.conn.Start(r, wg.Done)
		_, err = client.Write([]byte{0x81, 0x80, 0, 0, 0, 0})
		require.NoError(b, err)
		<-r.begun
		all = append(all, r)
	}
	env := &commonv1.Envelope{Raw: []byte(`{"content":"` + strings.Repeat("x", 486) + `"}`)}

	want := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		run := hub.NewRun()
		for range length {
			run.Add(hub.NewEvent(env))
		}
		for _, r := range all {
			for _, f := range run.Frames(r.id, r.prefix) {
				want += int64(f.Size())
				for !r.conn.Event(f) {
					r.conn.WantRoom()
					<-r.room
				}
			}
		}
	}
	read.await(want)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n*length), "ns/delivery")
	for _, r := range all {
		r.conn.Kill()
	}
	wg.Wait()
}

func (r *recipient) accept(b *testing.B, l net.Listener, m *metrics.Metrics) {
	b.Helper()
	c, err := cork.Listen(l, time.Minute, 0).Accept()
	require.NoError(b, err)
	nc := c.(*cork.Conn)
	req := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/", nil)
	for k, v := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
	} {
		req.Header.Set(k, v)
	}
	r.conn, err = conn.Accept(b.Context(), &conn.Config{
		FrameLimit: 1 << 20, QueueFrames: 1000, QueueBytes: 8 << 20, ControlFrames: 100, ControlBytes: 1 << 20,
		FlushFrames: 64, FlushBytes: 1 << 20, MissedPongs: 3, SlowStrikes: 1 << 20, SlowInterval: time.Second, CloseTimeout: time.Second,
	}, nc, m, hijacked{httptest.NewRecorder(), nc}, req)
	require.NoError(b, err)
}

// counter counts bytes. Nobody waits before the last was sent, so to wake the waiter costs the measurement nothing.
type counter struct {
	n    atomic.Int64
	want atomic.Int64 // 0 while nobody waits
	done chan struct{}
	once sync.Once
}

func (c *counter) Write(p []byte) (int, error) {
	n := c.n.Add(int64(len(p)))
	if want := c.want.Load(); want > 0 && n >= want {
		c.once.Do(func() { close(c.done) })
	}
	return len(p), nil
}

func (c *counter) await(want int64) {
	c.want.Store(want)
	if c.n.Load() < want {
		<-c.done
	}
}
