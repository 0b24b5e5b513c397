package cork_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tcpPair returns both ends of a TCP connection; the first is wrapped and past the handshake.
func tcpPair(t *testing.T, timeout time.Duration) (*cork.Conn, net.Conn) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	c, err := cork.Listen(l, timeout, 0).Accept()
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	server := c.(*cork.Conn)
	server.BeginFrames()
	return server, client
}

// trickle gives its reader a few bytes at a time.
type trickle struct{ r io.Reader }

func (t trickle) Read(p []byte) (int, error) {
	return t.r.Read(p[:min(len(p), 1+rand.N(700))])
}

func readFrame(r *bufio.Reader) (opcode byte, payload []byte, err error) {
	var h [2]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return 0, nil, err
	}
	if h[0]&0xf0 != 0x80 || h[1]&0x80 != 0 {
		return 0, nil, fmt.Errorf("not a frame: % x", h)
	}
	n := uint64(h[1])
	switch n {
	case 126:
		var b [2]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return 0, nil, err
		}
		n = uint64(binary.BigEndian.Uint16(b[:]))
	case 127:
		var b [8]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return 0, nil, err
		}
		n = binary.BigEndian.Uint64(b[:])
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	return h[0] & 0x0f, payload, err
}

func TestHeaders(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 65535, 65536, 100_000} {
		body := bytes.Repeat([]byte{'b'}, n)
		for _, f := range []cork.Frame{
			cork.Text(nil, body),
			cork.Text(body, nil),
			cork.Text(body[:n/2], body[n/2:]),
			cork.Build(3, func(dst []byte) []byte { return append(dst, body...) }),
		} {
			wire := append(append([]byte(nil), f.Head...), f.Body...)
			require.Len(t, wire, f.Size())
			op, payload, err := readFrame(bufio.NewReader(bytes.NewReader(wire)))
			require.NoError(t, err)
			require.Equal(t, byte(1), op)
			require.True(t, bytes.Equal(body, payload))
		}
	}
	op, payload, err := readFrame(bufio.NewReader(bytes.NewReader(cork.Pong(bytes.Repeat([]byte{'p'}, 500)).Head)))
	require.NoError(t, err)
	require.Equal(t, byte(10), op)
	require.Len(t, payload, cork.MaxControlPayload)
}

// Two writers, frames from one byte to many segments, a reader that takes little at a time: every frame
// arrives whole, and each writer's in its order.
func TestFramesNeverInterleave(t *testing.T) {
	const batches, pings = 300, 300
	server, client := tcpPair(t, time.Minute)
	var writers sync.WaitGroup
	writers.Go(func() {
		n := 0
		for range batches {
			var frames []cork.Frame
			for range 1 + rand.N(64) {
				size := rand.N(200)
				if rand.N(100) == 0 {
					size = rand.N(200_000)
				}
				frames = append(frames, cork.Text(fmt.Appendf(nil, "%d:", n), bytes.Repeat([]byte{byte('a' + n%26)}, size)))
				n++
			}
			if err := server.WriteFrames(frames, nil); err != nil {
				t.Error(err)
				return
			}
		}
		if err := server.WriteFrames([]cork.Frame{cork.Text([]byte("end"), nil)}, nil); err != nil {
			t.Error(err)
		}
	})
	writers.Go(func() {
		for n := range pings { // as the library does: one Write per control frame
			if _, err := server.Write(cork.Pong(fmt.Append(nil, n)).Head); err != nil {
				t.Error(err)
				return
			}
		}
	})
	r := bufio.NewReader(trickle{client})
	texts, pongs := 0, 0
	for end := false; !end || pongs < pings; {
		op, payload, err := readFrame(r)
		require.NoError(t, err)
		switch {
		case op == 10:
			require.Equal(t, strconv.Itoa(pongs), string(payload))
			pongs++
		case string(payload) == "end":
			end = true
		default:
			head, body, ok := bytes.Cut(payload, []byte(":"))
			require.True(t, ok)
			require.Equal(t, strconv.Itoa(texts), string(head))
			require.Empty(t, bytes.Trim(body, string(rune('a'+texts%26))))
			texts++
		}
	}
	writers.Wait()
}

func TestNothingFollowsAClose(t *testing.T) {
	server, client := tcpPair(t, time.Minute)
	_, err := server.Write([]byte{0x88, 0})
	require.NoError(t, err)
	require.ErrorIs(t, server.WriteFrames([]cork.Frame{cork.Text([]byte("late"), nil)}, nil), cork.ErrClosing)
	_, err = server.Write([]byte{0x89, 0})
	require.ErrorIs(t, err, cork.ErrClosing)
	server.Close()
	all, err := io.ReadAll(client)
	require.NoError(t, err)
	require.Equal(t, []byte{0x88, 0}, all)
}

func TestReadingIsMeteredUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		c := cork.New(a, time.Minute)
		var told []int
		c.Meter(func(read int) time.Duration { told = append(told, read); return time.Second })
		go func() {
			for range 3 {
				_, _ = b.Write([]byte("byte"))
			}
		}()
		began := time.Now()
		read := func() {
			_, err := c.Read(make([]byte, 4))
			require.NoError(t, err)
		}
		read()
		c.Charge(10)
		read()
		require.Equal(t, []int{4, 14}, told)
		require.Equal(t, 2*time.Second, time.Since(began))
		c.Part()
		read()
		require.Len(t, told, 2)
		require.Equal(t, 2*time.Second, time.Since(began), "what is about to be closed does not wait")
	})
}

func TestBeforeTheHandshakeBytesPass(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	c := cork.New(a, time.Minute)
	go func() { _, _ = c.Write([]byte{0x88, 'x'}) }()
	got := make([]byte, 2)
	_, err := io.ReadFull(b, got)
	require.NoError(t, err)
	require.Equal(t, []byte{0x88, 'x'}, got)
	go func() { _ = c.WriteFrames([]cork.Frame{cork.Ping()}, nil) }()
	_, err = io.ReadFull(b, got)
	require.NoError(t, err)
	require.Equal(t, []byte{0x89, 0}, got)
}

func TestASilentPeerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		c := cork.New(a, 10*time.Second)
		c.BeginFrames()
		began := time.Now()
		err := c.WriteFrames([]cork.Frame{cork.Text([]byte("nobody reads"), nil)}, nil)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 10*time.Second, time.Since(began))
		require.ErrorIs(t, c.WriteFrames([]cork.Frame{cork.Ping()}, nil), cork.ErrClosing)
	})
}

func TestASlowPeerIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		c := cork.New(a, 10*time.Second)
		c.BeginFrames()
		body := bytes.Repeat([]byte{'x'}, 100)
		var got []byte
		done := make(chan struct{})
		go func() {
			defer close(done)
			tick := time.NewTicker(7 * time.Second)
			defer tick.Stop()
			buf := make([]byte, 13)
			for len(got) < 104 {
				<-tick.C
				n, err := b.Read(buf)
				if err != nil {
					return
				}
				got = append(got, buf[:n]...)
			}
		}()
		require.NoError(t, c.WriteFrames([]cork.Frame{cork.Text(body[:4], body[4:]), cork.Ping()}, nil))
		<-done
		_, payload, err := readFrame(bufio.NewReader(bytes.NewReader(got)))
		require.NoError(t, err)
		require.Equal(t, body, payload)
	})
}

func TestAPeerThatTricklesIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		c := cork.New(a, 10*time.Second)
		c.BeginFrames()
		done := make(chan struct{})
		go func() {
			defer close(done)
			tick := time.NewTicker(9 * time.Second)
			defer tick.Stop()
			for buf := make([]byte, 1); ; <-tick.C {
				if _, err := b.Read(buf); err != nil {
					return
				}
			}
		}()
		began := time.Now()
		err := c.WriteFrames([]cork.Frame{cork.Text(nil, bytes.Repeat([]byte{'x'}, 100))}, nil)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 2*time.Minute, time.Since(began))
		require.True(t, c.Ended())
		a.Close()
		<-done
	})
}

func TestTheListenerLimitsConnections(t *testing.T) {
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := cork.Listen(inner, time.Minute, 2)
	accepted := make(chan net.Conn)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			accepted <- c
		}
	})
	for range 3 {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", inner.Addr().String())
		require.NoError(t, err)
		defer c.Close()
	}
	first, second := <-accepted, <-accepted
	select {
	case <-accepted:
		require.Fail(t, "one too many")
	case <-time.After(50 * time.Millisecond):
	}
	first.Close()
	first.Close() // counts once
	third := <-accepted
	// With the limit reached and one waiting, closing must not wait for anybody.
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", inner.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	l.Close()
	wg.Wait()
	second.Close()
	third.Close()
}
