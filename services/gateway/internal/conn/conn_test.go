package conn_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/services/gateway/internal/conn"
	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config() conn.Config {
	return conn.Config{
		FrameLimit: 1000, QueueFrames: 10, QueueBytes: 1 << 20, ControlFrames: 20, ControlBytes: 1 << 20,
		FlushFrames: 4, FlushBytes: 1 << 20, PingInterval: 30 * time.Second, MissedPongs: 3,
		SlowStrikes: 15, SlowInterval: time.Second, CloseTimeout: 10 * time.Second,
	}
}

// handler records what a connection tells it.
type handler struct {
	messages chan string
	rooms    atomic.Int32
	block    chan struct{} // Message waits for it, if set
}

func (h *handler) Message(text bool, msg []byte) {
	h.messages <- fmt.Sprint(text, " ", string(msg))
	if h.block != nil {
		<-h.block
	}
}
func (h *handler) TooBig(begin []byte) { h.messages <- fmt.Sprint("too big ", len(begin)) }
func (h *handler) Room()               { h.rooms.Add(1) }

// peer is the client's end of a served connection.
type peer struct {
	t      *testing.T
	net    net.Conn
	r      *bufio.Reader
	conn   *conn.Conn
	h      *handler
	served chan struct{} // closed when nothing is left of the connection
}

// hijacked is a response whose connection is the test's; behind is what the client has sent already.
type hijacked struct {
	*httptest.ResponseRecorder
	c      net.Conn
	behind []byte
}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r := bufio.NewReader(io.MultiReader(bytes.NewReader(h.behind), h.c))
	_, err := r.Peek(len(h.behind))
	return h.c, bufio.NewReadWriter(r, bufio.NewWriter(h.c)), err
}

// accept makes a connection of nc.
func accept(t *testing.T, cfg *conn.Config, nc *cork.Conn, m *metrics.Metrics, behind []byte) *conn.Conn {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	for k, v := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
	} {
		req.Header.Set(k, v)
	}
	c, err := conn.Accept(t.Context(), cfg, nc, m, hijacked{httptest.NewRecorder(), nc, behind}, req)
	require.NoError(t, err)
	return c
}

// serve connects a client by an unbuffered pipe; it must run in a bubble.
func serve(t *testing.T, cfg conn.Config, h *handler) *peer {
	t.Helper()
	return start(t, cfg, h, nil)
}

// start is serve with what the client has sent right behind its handshake.
func start(t *testing.T, cfg conn.Config, h *handler, behind []byte) *peer {
	t.Helper()
	m, err := metrics.New(noop.NewMeterProvider().Meter(""))
	require.NoError(t, err)
	server, client := net.Pipe()
	c := accept(t, &cfg, cork.New(server, 20*time.Second), m, behind)
	if h.messages == nil {
		h.messages = make(chan string, 100)
	}
	p := &peer{t: t, net: client, r: bufio.NewReader(client), conn: c, h: h, served: make(chan struct{})}
	c.Start(h, func() { close(p.served) })
	t.Cleanup(func() {
		client.Close()
		<-p.served
	})
	return p
}

// read takes a frame: opcode and payload.
func (p *peer) read() (byte, string) {
	p.t.Helper()
	var h [2]byte
	_, err := io.ReadFull(p.r, h[:])
	require.NoError(p.t, err)
	n := int(h[1])
	if n == 126 {
		var b [2]byte
		_, err := io.ReadFull(p.r, b[:])
		require.NoError(p.t, err)
		n = int(binary.BigEndian.Uint16(b[:]))
	}
	payload := make([]byte, n)
	_, err = io.ReadFull(p.r, payload)
	require.NoError(p.t, err)
	return h[0] & 0x0f, string(payload)
}

const (
	opText  = 1
	opClose = 8
	opPing  = 9
	opPong  = 10
)

// write sends a frame with a mask of zeros.
func (p *peer) write(opcode byte, payload string) {
	p.t.Helper()
	head := []byte{0x80 | opcode, 0x80 | byte(len(payload)), 0, 0, 0, 0}
	if len(payload) > 125 {
		head = append([]byte{0x80 | opcode, 0x80 | 126}, byte(len(payload)>>8), byte(len(payload)), 0, 0, 0, 0)
	}
	_, err := p.net.Write(append(head, payload...))
	require.NoError(p.t, err)
}

// send writes bytes as they are, if there are any.
func (p *peer) send(wire []byte) {
	p.t.Helper()
	_, err := p.net.Write(wire)
	require.NoError(p.t, err)
}

// closeCode requires a close frame and returns its code.
func (p *peer) closeCode() int {
	p.t.Helper()
	op, payload := p.read()
	require.Equal(p.t, byte(opClose), op)
	return int(binary.BigEndian.Uint16([]byte(payload)))
}

func text(s string) cork.Frame { return cork.Text([]byte(s), nil) }

func TestWhatIsNoHandshakeIsRefused(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	cfg := config()
	w := httptest.NewRecorder()
	_, err := conn.Accept(t.Context(), &cfg, cork.New(a, time.Minute), nil, w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	require.Error(t, err)
	require.Equal(t, http.StatusUpgradeRequired, w.Code)
}

func TestMessagesComeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, config(), &handler{})
		p.write(opText, "one")
		p.write(2, "two")
		require.Equal(t, "true one", <-p.h.messages)
		require.Equal(t, "false two", <-p.h.messages)
	})
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, config(), &handler{})
		began := time.Now()
		op, _ := p.read()
		require.Equal(t, byte(opPing), op)
		first := time.Since(began)
		require.GreaterOrEqual(t, first, 15*time.Second)
		require.LessOrEqual(t, first, 30*time.Second)
		for range 5 {
			p.write(opPong, "")
			began = time.Now()
			op, _ = p.read()
			require.Equal(t, byte(opPing), op)
			require.Equal(t, 30*time.Second, time.Since(began))
		}
		// No more pongs: two further pings, and the end when the fourth would be due.
		began = time.Now()
		for range 2 {
			op, _ = p.read()
			require.Equal(t, byte(opPing), op)
		}
		require.Equal(t, 1008, p.closeCode())
		require.Equal(t, 90*time.Second, time.Since(began))
		p.net.Close()
		<-p.served
		require.Equal(t, metrics.OutcomeNoPong, p.conn.Cause())
	})
}

func TestPingsAreAnsweredInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, config(), &handler{})
		p.conn.Control(text("before"))
		p.write(opPing, "hello")
		op, s := p.read()
		require.Equal(t, fmt.Sprint(opText, "before"), fmt.Sprint(op, s))
		op, s = p.read()
		require.Equal(t, fmt.Sprint(opPong, "hello"), fmt.Sprint(op, s))
	})
}

func TestCloseSendsWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, config(), &handler{})
		for i := range 10 {
			require.True(t, p.conn.Event(text(strconv.Itoa(i))))
		}
		p.conn.Close(websocket.StatusServiceRestart, "service restart", metrics.OutcomeRestart)
		p.conn.Control(text("too late"))
		for i := range 10 {
			_, s := p.read()
			require.Equal(t, strconv.Itoa(i), s)
		}
		require.Equal(t, 1012, p.closeCode())
		p.write(opClose, "\x03\xf4")
		<-p.served
		require.Equal(t, metrics.OutcomeRestart, p.conn.Cause())
		require.Error(t, p.conn.Context().Err())
	})
}

func TestCloseDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, config(), &handler{})
		began := time.Now()
		p.conn.Event(text("nobody reads this"))
		p.conn.Close(websocket.StatusServiceRestart, "service restart", metrics.OutcomeRestart)
		<-p.served
		require.Equal(t, 10*time.Second, time.Since(began))
	})
}

func TestAFullQueueRefusesEventsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, config(), &handler{})
		n := 0
		for p.conn.Event(text(strconv.Itoa(n))) {
			n++
		}
		require.Equal(t, 10, n)
		p.conn.WantRoom()
		p.conn.Control(text("control"))
		synctest.Wait()
		require.Zero(t, p.h.rooms.Load())
		for i := range n {
			_, s := p.read()
			require.Equal(t, strconv.Itoa(i), s)
		}
		_, s := p.read()
		require.Equal(t, "control", s, "in its place behind the events")
		synctest.Wait()
		require.Equal(t, int32(1), p.h.rooms.Load())
		require.True(t, p.conn.Event(text("again")))
		p.conn.WantRoom() // there is room: told at once
		require.Equal(t, int32(2), p.h.rooms.Load())
	})
}

func TestHistoryWaitsForHalfOfTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, config(), &handler{})
		sent := make(chan int, 1)
		go func() {
			n := 0
			for ; n < 40; n++ {
				if p.conn.HistoryRoom(t.Context()) != nil {
					break
				}
				p.conn.History(text(strconv.Itoa(n)))
			}
			sent <- n
		}()
		synctest.Wait()
		require.True(t, p.conn.Event(text("live")), "there is room for live events")
		for i := range 41 {
			_, s := p.read()
			if i == 6 {
				require.Equal(t, "live", s)
			}
		}
		require.Equal(t, 40, <-sent)
	})
}

// What many slow clients leave unread does not add up without end: beyond the limit of them all each may
// have a small part of its own, and those who read are not concerned.
func TestSlowClientsTogetherAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.QueueFrames, cfg.QueueBytes, cfg.SlowStrikes = 1000, 32_000, 1000
		cfg.Pressure = conn.NewPressure(100_000)
		frame := text(strings.Repeat("x", 496)) // and 4 bytes of header
		var slow []*peer
		taken := make([]int, 10)
		for i := range taken {
			slow = append(slow, serve(t, cfg, &handler{}))
			for slow[i].conn.Event(frame) {
				taken[i]++
			}
		}
		// The first three have all they may, together 93,000 bytes beyond their parts; the fourth exceeds it.
		require.Equal(t, []int{64, 64, 64, 17, 2, 2, 2, 2, 2, 2}, taken)
		require.Equal(t, int64(100_500), cfg.Pressure.Bytes())
		require.False(t, slow[4].conn.HasHistoryRoom())

		reader := serve(t, cfg, &handler{})
		for range 100 {
			require.True(t, reader.conn.Event(frame))
			_, payload := reader.read()
			require.Len(t, payload, 496)
			synctest.Wait()
		}
		for _, p := range slow[:3] {
			p.conn.Kill()
			<-p.served
		}
		require.Less(t, cfg.Pressure.Bytes(), int64(10_000))
		require.True(t, slow[4].conn.Event(frame), "there is room again")
		for _, p := range slow[3:] {
			p.conn.Abort(websocket.StatusGoingAway, "", metrics.OutcomePeer)
			p.net.Close()
			<-p.served
		}
		require.Zero(t, cfg.Pressure.Bytes())
	})
}

func TestTooManyControlFramesEndTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, config(), &handler{})
		for range 30 {
			p.conn.Control(text("notice"))
		}
		<-p.served
		require.Equal(t, metrics.OutcomeStuck, p.conn.Cause())
	})
}

// A peer that does not read its answers is not read either: that is why the end above is rare.
func TestAnswersHoldTheReaderBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, config(), &handler{})
		for range 12 {
			p.conn.Control(text("ok"))
		}
		wrote := make(chan struct{})
		go func() {
			defer close(wrote)
			for range 3 {
				p.write(opText, "more")
			}
		}()
		synctest.Wait()
		require.LessOrEqual(t, len(p.h.messages), 1)
		for range 12 {
			p.read()
		}
		<-wrote
		for range 3 {
			<-p.h.messages
		}
	})
}

func TestASlowClientIsDisconnectedAfterItsStrikes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, config(), &handler{})
		for p.conn.Event(text("event")) {
		}
		p.conn.WantRoom()
		began := time.Now()
		// It reads, but too little to come below half: one frame's byte now and then.
		var b [1]byte
		for p.conn.Context().Err() == nil && time.Since(began) < 14500*time.Millisecond {
			_, err := p.r.Read(b[:])
			require.NoError(t, err)
			timer := time.NewTimer(4 * time.Second)
			<-timer.C
		}
		<-p.served
		require.Equal(t, metrics.OutcomeSlow, p.conn.Cause())
		require.GreaterOrEqual(t, time.Since(began), 15*time.Second)
		require.Less(t, time.Since(began), 30*time.Second)
	})
}

func TestReadingInTimeClearsTheStrikes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, config(), &handler{})
		for range 3 {
			for p.conn.Event(text("event")) {
			}
			p.conn.WantRoom()
			timer := time.NewTimer(10 * time.Second)
			<-timer.C
			for range 10 {
				p.read()
			}
			synctest.Wait()
		}
		require.NoError(t, p.conn.Context().Err())
		require.Equal(t, int32(3), p.h.rooms.Load())
	})
}

func TestAMessageThatIsTooBig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, config(), &handler{})
		go func() { // the rest of the message and the answer to the close are read while closing
			head := []byte{0x81, 0xff, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0}
			_, _ = p.net.Write(append(head, make([]byte, 4096)...))
			_, _ = p.net.Write([]byte{0x88, 0x82, 0, 0, 0, 0, 0x03, 0xf1})
		}()
		require.Equal(t, "too big 1001", <-p.h.messages)
		require.Equal(t, 1009, p.closeCode())
		<-p.served
		require.Equal(t, metrics.OutcomeTooBig, p.conn.Cause())
	})
}

func TestThePeerMayLeaveAtAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, config(), &handler{})
		for p.conn.Event(text("event")) {
		}
		p.net.Close()
		<-p.served
		require.Error(t, p.conn.Context().Err())
		p.conn.Control(text("to nobody"))
		require.True(t, p.conn.Event(text("to nobody")))
		p.conn.Close(websocket.StatusServiceRestart, "", metrics.OutcomeRestart)
		require.NoError(t, p.conn.HistoryRoom(t.Context()))
	})
}

func TestKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, config(), &handler{})
		p.conn.Kill()
		<-p.served
	})
}
