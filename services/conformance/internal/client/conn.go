package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

const (
	// maxFrame bounds one frame of the relay.
	maxFrame = 16 << 20
	// maxKept bounds what is kept of one connection.
	maxKept = 128 << 20
)

// ErrGone is the end of a connection; what it wraps says how it ended.
var ErrGone = errors.New("the connection ended")

// Conn is a connection to a relay, and everything that the relay sent over it.
type Conn struct {
	url     string
	ws      *websocket.Conn
	stop    context.CancelFunc
	gone    chan struct{} // closed by the reader at the end
	lastSub atomic.Int64

	mu      sync.Mutex
	frames  []Frame       // guarded by mu, only appended to
	kept    int           // bytes of frames, guarded by mu
	changed chan struct{} // guarded by mu; closed when frames grow
	err     error         // guarded by mu; set before gone is closed
}

// Dial connects. The connection lives until Close, or until the relay ends it.
func Dial(ctx context.Context, client *http.Client, url string) (*Conn, error) {
	ws, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPClient: client, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(maxFrame)
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	c := &Conn{url: url, ws: ws, stop: stop, gone: make(chan struct{}), changed: make(chan struct{})}
	go c.read(reading)
	return c, nil
}

// read keeps what comes until the connection ends.
func (c *Conn) read(ctx context.Context) {
	defer close(c.gone)
	for {
		_, data, err := c.ws.Read(ctx)
		if err == nil {
			err = c.keep(Decode(data))
		}
		if err != nil {
			c.mu.Lock()
			c.err = fmt.Errorf("%w: %w", ErrGone, err)
			c.mu.Unlock()
			_ = c.ws.CloseNow()
			return
		}
	}
}

func (c *Conn) keep(f Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept += len(f.Raw); c.kept > maxKept {
		return fmt.Errorf("the relay sent more than %d bytes", maxKept)
	}
	c.frames = append(c.frames, f)
	close(c.changed)
	c.changed = make(chan struct{})
	return nil
}

// Close ends the connection with a closing handshake that the relay has little time for, and waits for the
// reader.
func (c *Conn) Close() {
	c.stop()
	_ = c.ws.CloseNow()
	<-c.gone
}

// URL is where the connection goes.
func (c *Conn) URL() string { return c.url }

// Gone is closed when the connection has ended.
func (c *Conn) Gone() <-chan struct{} { return c.gone }

// Err says how the connection ended, nil while it is open. The error is an ErrGone.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Send sends a text frame.
func (c *Conn) Send(ctx context.Context, frame []byte) error {
	return c.ws.Write(ctx, websocket.MessageText, frame)
}

// SendBinary sends a binary frame.
func (c *Conn) SendBinary(ctx context.Context, frame []byte) error {
	return c.ws.Write(ctx, websocket.MessageBinary, frame)
}

// SendJSON sends elements as a JSON array.
func (c *Conn) SendJSON(ctx context.Context, elements ...any) error {
	frame, err := json.Marshal(elements)
	if err != nil {
		return err
	}
	return c.Send(ctx, frame)
}

// Ping sends a ping of the WebSocket protocol and waits for the pong.
func (c *Conn) Ping(ctx context.Context) error { return c.ws.Ping(ctx) }

// Mark returns how many frames have come.
func (c *Conn) Mark() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.frames)
}

// Since returns the frames from a mark on, as far as they have come.
func (c *Conn) Since(mark int) []Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frames[mark:len(c.frames):len(c.frames)]
}

// Await waits for the first frame from mark on that matches, and returns it with the mark behind it. Frames
// that came before the end of the connection count after it.
func (c *Conn) Await(ctx context.Context, mark int, match func(*Frame) bool) (*Frame, int, error) {
	for {
		c.mu.Lock()
		frames, changed := c.frames, c.changed
		c.mu.Unlock()
		for ; mark < len(frames); mark++ {
			if match(&frames[mark]) {
				return &frames[mark], mark + 1, nil
			}
		}
		select {
		case <-changed:
		case <-c.gone:
			if c.Mark() == mark {
				return nil, mark, c.Err()
			}
		case <-ctx.Done():
			return nil, mark, ctx.Err()
		}
	}
}

// NewSub returns a subscription id that this connection has not used.
func (c *Conn) NewSub() string { return fmt.Sprintf("sub-%d", c.lastSub.Add(1)) }

// Verdict is the relay's answer to an event.
type Verdict struct {
	OK      bool
	Message string
}

// String returns the verdict as a person reads it.
func (v Verdict) String() string { return fmt.Sprintf("OK %t %q", v.OK, v.Message) }

// Publish sends an event and waits for its OK.
func (c *Conn) Publish(ctx context.Context, e *nostr.Event) (Verdict, error) {
	return c.Submit(ctx, LabelEvent, e.ID, e.AppendJSON(nil))
}

// Submit sends an event's bytes under a label, EVENT or AUTH, and waits for the OK to id.
func (c *Conn) Submit(ctx context.Context, label string, id nostr.ID, raw []byte) (Verdict, error) {
	mark := c.Mark()
	if err := c.Send(ctx, []byte(`["`+label+`",`+string(raw)+`]`)); err != nil {
		return Verdict{}, err
	}
	return c.Verdict(ctx, mark, id)
}

// Verdict waits for the OK to id from mark on.
func (c *Conn) Verdict(ctx context.Context, mark int, id nostr.ID) (Verdict, error) {
	text := id.String()
	f, _, err := c.Await(ctx, mark, func(f *Frame) bool { return f.Label == LabelOK && f.ID == text })
	if err != nil {
		return Verdict{}, err
	}
	return Verdict{f.Accepted, f.Message}, nil
}
