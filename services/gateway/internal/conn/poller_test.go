//go:build linux

package conn_test

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/apiary-relay/apiary/services/gateway/internal/conn"
	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

func newPoller(t *testing.T) *conn.Poller {
	t.Helper()
	p, err := conn.NewPoller()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// What a silent connection takes over TCP that waits at a poller: no buffer and no goroutine.
func TestAPolledConnectionTakesLittle(t *testing.T) {
	poller := newPoller(t)
	takesLittle(t, poller, 5<<10, poller.Len)
}

// waiting connects a client over TCP whose connection waits at the poller.
func waiting(t *testing.T, poller *conn.Poller) *peer {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	m, err := metrics.New(noop.NewMeterProvider().Meter(""))
	require.NoError(t, err)
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	server, err := cork.Listen(l, time.Minute, 0).Accept()
	require.NoError(t, err)
	cfg := config()
	cfg.Poller = poller
	c := accept(t, &cfg, server.(*cork.Conn), m, nil)
	h := &handler{messages: make(chan string, 100)}
	p := &peer{t: t, net: client, r: bufio.NewReader(client), conn: c, h: h, served: make(chan struct{})}
	before := poller.Len()
	c.Start(h, func() { close(p.served) })
	t.Cleanup(func() {
		client.Close()
		<-p.served
	})
	waits(t, poller, before+1)
	return p
}

func waits(t *testing.T, poller *conn.Poller, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return poller.Len() == n }, time.Minute, 10*time.Millisecond)
}

func TestWhatEndsAWait(t *testing.T) {
	answered := func(p *peer, code int) {
		require.Equal(t, code, p.closeCode())
		p.write(opClose, "\x03\xf4")
	}
	for name, test := range map[string]struct {
		end   func(p *peer)
		cause string
	}{
		"the peer leaves":      {func(p *peer) { p.net.Close() }, metrics.OutcomePeer},
		"the peer sends a FIN": {func(p *peer) { require.NoError(t, p.net.(*net.TCPConn).CloseWrite()) }, metrics.OutcomePeer},
		"the peer resets": {func(p *peer) {
			require.NoError(t, p.net.(*net.TCPConn).SetLinger(0))
			p.net.Close()
		}, metrics.OutcomePeer},
		"the peer closes": {func(p *peer) {
			p.write(opClose, "\x03\xe8")
			require.Equal(t, 1000, p.closeCode())
		}, metrics.OutcomePeer},
		"a close": {func(p *peer) {
			p.conn.Close(websocket.StatusServiceRestart, "", metrics.OutcomeRestart)
			answered(p, 1012)
		}, metrics.OutcomeRestart},
		"an abort": {func(p *peer) {
			p.conn.Abort(websocket.StatusPolicyViolation, "", metrics.OutcomePolicy)
			answered(p, 1008)
		}, metrics.OutcomePolicy},
		"the library closes the socket": {func(p *peer) { require.NoError(t, p.conn.CloseSocket()) }, metrics.OutcomePeer},
		"a kill": {func(p *peer) {
			p.conn.Kill()
			_, err := p.r.ReadByte()
			require.ErrorIs(t, err, io.EOF)
		}, metrics.OutcomeRestart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			poller := newPoller(t)
			p := waiting(t, poller)
			test.end(p)
			<-p.served
			require.Equal(t, test.cause, p.conn.Cause())
			require.Zero(t, poller.Len())
		})
	}
}

func TestWhoWaitsIsHeardAgain(t *testing.T) {
	t.Parallel()
	poller := newPoller(t)
	p := waiting(t, poller)
	for range 2 {
		p.write(opText, "one")
		require.Equal(t, "true one", <-p.h.messages)
		waits(t, poller, 1)
		// Half a frame is no silence: the rest may take its time.
		half := frame(0x81, "in two halves")
		p.send(half[:7])
		waits(t, poller, 0)
		p.send(half[7:])
		require.Equal(t, "true in two halves", <-p.h.messages)
		waits(t, poller, 1)
	}
}

// What waits when the poller ends waits on, and what comes to wait later does so by itself.
func TestAPollerThatEnds(t *testing.T) {
	t.Parallel()
	poller, err := conn.NewPoller()
	require.NoError(t, err)
	one, two := waiting(t, poller), waiting(t, poller)
	one.write(opText, "before")
	require.Equal(t, "true before", <-one.h.messages)
	require.NoError(t, poller.Close())
	for _, p := range []*peer{one, two} {
		p.write(opText, "after")
		require.Equal(t, "true after", <-p.h.messages)
	}
	one.conn.Close(websocket.StatusServiceRestart, "", metrics.OutcomeRestart)
	require.Equal(t, 1012, one.closeCode())
}

// Descriptors are used again: whoever gets that of a connection that waited is not taken for it.
func TestADescriptorThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	poller := newPoller(t)
	for range 3 {
		p, other := waiting(t, poller), waiting(t, poller)
		p.conn.Kill()
		<-p.served
		waits(t, poller, 1)
		other.write(opText, "still here")
		require.Equal(t, "true still here", <-other.h.messages)
		other.conn.Kill()
		<-other.served
	}
}
