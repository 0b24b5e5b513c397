package conn

import (
	"bufio"
	"context"
	"net"
	"net/http"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

// Sizes of the library's buffers, which live as long as the connection: the least that bufio has for what is read, since
// source has the bytes already, and the longest control frame for what is written.
const (
	readBuffer  = 16
	writeBuffer = 2 + cork.MaxControlPayload
)

// Accept answers a request to become a WebSocket and returns the connection, to be served with Start; with an error the
// request has been answered. nc carries the request. cfg is not changed any more. ctx carries the trace and log attributes
// of the connection's root and is not used to end it.
func Accept(
	ctx context.Context, cfg *Config, nc *cork.Conn, m *metrics.Metrics, w http.ResponseWriter, r *http.Request,
) (*Conn, error) {
	c := &Conn{cfg: cfg, net: nc, m: m}
	c.source.Conn, c.source.owner = nc, c
	// Not a child that its parent would know: connections end by themselves.
	c.ctx, c.end = context.WithCancel(context.WithoutCancel(ctx))
	ws, err := websocket.Accept(lean{w, &c.source}, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // clients come from any origin; NIP-42 binds their answer to the host
		CompressionMode:    websocket.CompressionDisabled,
		OnPingReceived:     c.onPing,
		OnPongReceived:     c.onPong,
	})
	if err != nil {
		c.end()
		c.source.release()
		return nil, err
	}
	ws.SetReadLimit(-1) // we enforce the limit ourselves, to be able to answer first
	c.ws = ws
	c.queue.ctl = budget{maxFrames: cfg.ControlFrames, maxBytes: cfg.ControlBytes}
	c.queue.data = budget{maxFrames: cfg.QueueFrames, maxBytes: cfg.QueueBytes, pressure: cfg.Pressure}
	nc.BeginFrames()
	return c, nil
}

// lean is a ResponseWriter whose Hijack gives the connection as a source, with small buffers instead of the HTTP server's
// 4 KiB each.
type lean struct {
	http.ResponseWriter
	source *source
}

// Hijack implements http.Hijacker.
func (l lean) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	_, rw, err := http.NewResponseController(l.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	behind, err := rw.Peek(rw.Reader.Buffered())
	if err != nil {
		return nil, nil, err
	}
	l.source.begin(behind)
	return l.source, bufio.NewReadWriter(l.source.library, bufio.NewWriterSize(l.source, writeBuffer)), nil
}
