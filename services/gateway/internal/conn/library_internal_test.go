package conn

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// script is a connection whose Reads are given.
type script struct {
	net.Conn
	reads []any // string or error
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.reads) == 0 {
		return 0, net.ErrClosed
	}
	next := s.reads[0]
	if err, ok := next.(error); ok {
		s.reads = s.reads[1:]
		return 0, err
	}
	n := copy(p, next.(string))
	if s.reads[0] = next.(string)[n:]; s.reads[0] == "" {
		s.reads = s.reads[1:]
	}
	return n, nil
}

func (s *script) Write(p []byte) (int, error) { return len(p), nil }
func (s *script) Close() error                { return nil }

// taken is a response whose connection and buffer are the test's.
type taken struct {
	*httptest.ResponseRecorder
	c net.Conn
	r *bufio.Reader
}

func (h taken) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.c, bufio.NewReadWriter(h.r, bufio.NewWriterSize(h.c, writeBuffer)), nil
}

// What reading rests on and the library does not promise: it reads through the buffer that it was given, takes no more of it
// than the frame before it calls the hook of a control frame, returns an error of the connection as it is, and may be asked
// again after one between frames.
func TestTheLibraryMayBeAskedAgain(t *testing.T) {
	pong, ping, text := "\x8a\x80\x00\x00\x00\x00", "\x89\x82\x00\x00\x00\x00hi", "\x81\x83\x00\x00\x00\x00abc"
	c := &script{reads: []any{
		errBoundary, // before all
		pong, errBoundary,
		ping + text[:1], text[1:], // a frame that has begun is in the buffer when the hook is called
		errBoundary, errBoundary,
		text[:5], text[5:] + ping, errBoundary,
		text,
	}}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	for k, v := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
	} {
		req.Header.Set(k, v)
	}
	r := bufio.NewReaderSize(c, readBuffer)
	var buffered []int
	ws, err := websocket.Accept(taken{httptest.NewRecorder(), c, r}, req, &websocket.AcceptOptions{
		OnPingReceived: func(context.Context, []byte) bool { buffered = append(buffered, r.Buffered()); return false },
		OnPongReceived: func(context.Context, []byte) { buffered = append(buffered, r.Buffered()) },
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, ws.CloseNow()) }()
	ctx := context.WithoutCancel(t.Context())
	boundary := func() {
		t.Helper()
		_, _, err := ws.Reader(ctx)
		require.ErrorIs(t, err, errBoundary)
		require.Equal(t, websocket.StatusCode(-1), websocket.CloseStatus(err))
	}
	message := func() {
		t.Helper()
		typ, body, err := ws.Read(ctx)
		require.NoError(t, err)
		require.Equal(t, websocket.MessageText, typ)
		require.Equal(t, "abc", string(body))
	}
	boundary()
	boundary()
	message()
	boundary()
	boundary()
	message()
	boundary()
	message()
	require.Equal(t, []int{0, 1, 0}, buffered)
	_, _, err = ws.Reader(ctx)
	require.ErrorIs(t, err, net.ErrClosed)
}
