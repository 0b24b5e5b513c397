package conn_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/apiary-relay/apiary/services/gateway/internal/conn"
	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

// frame is a client's frame with a mask.
func frame(first byte, payload string) []byte {
	out := []byte{first}
	switch n := len(payload); {
	case n < 126:
		out = append(out, 0x80|byte(n))
	case n < 1<<16:
		out = append(out, 0x80|126, byte(n>>8), byte(n))
	default:
		out = append(out, 0x80|127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	mask := [4]byte{byte(rand.N(256)), byte(rand.N(256)), byte(rand.N(256)), byte(rand.N(256))}
	out = append(out, mask[:]...)
	for i := range len(payload) {
		out = append(out, payload[i]^mask[i%4])
	}
	return out
}

// However a client cuts its messages into frames, and the network those into reads, the same messages arrive, with pings
// answered in between.
func TestMessagesOfAnyShape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.FrameLimit = 20_000
		h := &handler{messages: make(chan string, 1000)}
		p := serve(t, cfg, h)
		var wire []byte
		var want []string
		pings := 0
		for i := range 150 {
			size := rand.N(300)
			if i%10 == 0 {
				size = rand.N(20_001)
			}
			body := strings.Repeat(string(rune('a'+i%26)), size)
			want = append(want, "true "+body)
			opcode := byte(opText)
			for rand.N(3) == 0 {
				cut := rand.N(len(body) + 1)
				wire = append(wire, frame(opcode, body[:cut])...)
				body, opcode = body[cut:], 0
				if rand.N(2) == 0 {
					wire = append(wire, frame(0x80|opPing, strconv.Itoa(pings))...)
					pings++
				}
			}
			wire = append(wire, frame(0x80|opcode, body)...)
		}
		go func() {
			for len(wire) > 0 {
				n := min(len(wire), 1+rand.N(3000))
				if rand.N(4) == 0 {
					n = 1
				}
				_, err := p.net.Write(wire[:n])
				if err != nil {
					return
				}
				wire = wire[n:]
			}
		}()
		for i := range pings {
			op, payload := p.read()
			require.Equal(t, byte(opPong), op)
			require.Equal(t, strconv.Itoa(i), payload)
		}
		for _, w := range want {
			require.Equal(t, w, <-h.messages)
		}
	})
}

// Whatever the sizes of messages before it, of buffers that are used again, a message is whole, up to the limit.
func TestMessagesOfAnySize(t *testing.T) {
	const limit = 3 << 20
	sizes := []int{0, limit, limit - 1}
	for size := 4 << 10; size < limit; size *= 2 {
		sizes = append(sizes, size-1, size, size+1)
	}
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.FrameLimit = limit
		p := serve(t, cfg, &handler{})
		for range 2 {
			rand.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
			for i, size := range sizes {
				body := strings.Repeat(string(rune('a'+i%26)), size)
				p.send(frame(0x81, body))
				require.Equal(t, "true "+body, <-p.h.messages)
			}
		}
		go p.send(frame(0x81, strings.Repeat("x", limit+1)))
		require.Equal(t, fmt.Sprint("too big ", limit+1), <-p.h.messages)
		require.Equal(t, 1009, p.closeCode())
		p.write(opClose, "\x03\xf1")
	})
}

func TestWhoIsSilentIsHeardAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.PingInterval = 0
		p := serve(t, cfg, &handler{})
		for _, pause := range []time.Duration{time.Second, time.Minute, time.Second, time.Hour} {
			<-time.After(pause)
			p.write(opText, pause.String())
			require.Equal(t, "true "+pause.String(), <-p.h.messages)
			// Half a frame is no silence: the rest may take its time.
			half := frame(0x81, "in two halves")
			_, err := p.net.Write(half[:7])
			require.NoError(t, err)
			<-time.After(pause)
			_, err = p.net.Write(half[7:])
			require.NoError(t, err)
			require.Equal(t, "true in two halves", <-p.h.messages)
		}
		<-time.After(time.Minute)
		p.net.Close()
		<-p.served
		require.Equal(t, metrics.OutcomePeer, p.conn.Cause())
	})
}

func TestWhatCameBehindTheHandshakeIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handler{}
		all := frame(0x81, "early")
		p := start(t, config(), h, all[:5])
		_, err := p.net.Write(all[5:])
		require.NoError(t, err)
		require.Equal(t, "true early", <-p.h.messages)
	})
}

func TestACloseIsAnsweredWithItsCode(t *testing.T) {
	for payload, code := range map[string]int{"\x03\xe8bye": 1000, "\x0f\xa0": 4000, "": 0} {
		synctest.Test(t, func(t *testing.T) {
			p := serve(t, config(), &handler{})
			p.write(opClose, payload)
			op, answer := p.read()
			require.Equal(t, byte(opClose), op)
			if code == 0 {
				require.Empty(t, answer)
			} else {
				require.Equal(t, payload, answer)
			}
			<-p.served
			require.Equal(t, metrics.OutcomePeer, p.conn.Cause())
		})
	}
}

func TestWhoBreaksTheProtocolIsToldSo(t *testing.T) {
	text := frame(0x81, "x")
	unmasked := append([]byte{text[0], text[1] & 0x7f}, 'x')
	for name, wire := range map[string][]byte{
		"reserved bit":           append([]byte{0xc1}, text[1:]...),
		"not masked":             unmasked,
		"unknown opcode":         append([]byte{0x83}, text[1:]...),
		"continuation of none":   append([]byte{0x80}, text[1:]...),
		"message within another": append(frame(0x01, "a"), frame(0x01, "b")...),
		"ping in two":            append([]byte{0x09}, text[1:]...),
		"code of a close":        frame(0x88, "\x03"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := serve(t, config(), &handler{})
				go func() { _, _ = p.net.Write(wire) }()
				require.Equal(t, int(websocket.StatusProtocolError), p.closeCode())
				<-p.served
				require.Empty(t, p.h.messages)
			})
		})
	}
}

// A peer that does not answer a close is given up, and one that goes on sending is not heard.
func TestNobodyIsHeardWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, config(), &handler{})
		began := time.Now()
		p.conn.Close(websocket.StatusServiceRestart, "", metrics.OutcomeRestart)
		require.Equal(t, 1012, p.closeCode())
		for range 3 {
			p.write(opText, "still here")
			_, err := p.net.Write(frame(0x01, "and here"))
			require.NoError(t, err)
		}
		<-p.served
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Empty(t, p.h.messages)
	})
}

// Wherever the reading side is when the relay closes, the peer's answer is found, and that is the end.
func TestAnAnswerToACloseIsFound(t *testing.T) {
	half := frame(0x81, "half a message")
	for name, test := range map[string]struct {
		before func(p *peer)
		after  []byte // is sent before the answer
	}{
		"at the beginning": {func(*peer) {}, nil},
		"after a message":  {func(p *peer) { p.write(opText, "x"); <-p.h.messages }, nil},
		"after a pong":     {func(p *peer) { p.write(opPong, "") }, nil},
		"at rest":          {func(*peer) { <-time.After(time.Hour) }, nil},
		"at rest after a pong": {func(p *peer) {
			p.write(opPong, "")
			<-time.After(time.Hour)
		}, frame(0x81, "late")},
		"within a header":  {func(p *peer) { p.send(half[:1]) }, half[1:]},
		"within a message": {func(p *peer) { p.send(half[:9]) }, half[9:]},
		"between fragments": {func(p *peer) {
			p.send(frame(0x01, "one"))
			p.write(opPong, "")
		}, frame(0x80, "two")},
		"within a fragment": {func(p *peer) {
			p.send(frame(0x01, "one"))
			p.send(frame(0x80, "fragment")[:8])
		}, frame(0x80, "fragment")[8:]},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := config()
				cfg.PingInterval = 0
				p := serve(t, cfg, &handler{})
				test.before(p)
				synctest.Wait()
				began := time.Now()
				p.conn.Close(websocket.StatusServiceRestart, "", metrics.OutcomeRestart)
				require.Equal(t, 1012, p.closeCode())
				p.send(test.after)
				p.write(opPong, "")
				p.write(opClose, "\x03\xf4")
				<-p.served
				require.Zero(t, time.Since(began))
				require.Equal(t, metrics.OutcomeRestart, p.conn.Cause())
			})
		})
	}
}

// While a message is worked on the closing handshake goes on.
func TestAnAnswerIsFoundWhileAMessageIsWorkedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handler{block: make(chan struct{})}
		p := serve(t, config(), h)
		p.send(append(frame(0x81, "one"), frame(0x81, "two")[:3]...))
		require.Equal(t, "true one", <-h.messages)
		p.conn.Close(websocket.StatusServiceRestart, "", metrics.OutcomeRestart)
		require.Equal(t, 1012, p.closeCode())
		p.send(frame(0x81, "two")[3:])
		p.write(opClose, "\x03\xf4")
		_, err := p.r.ReadByte()
		require.ErrorIs(t, err, io.EOF)
		close(h.block)
		<-p.served
		require.Empty(t, h.messages)
	})
}

// What a silent connection takes over TCP without a poller: no buffer, and the smallest stack there is.
func TestASilentConnectionTakesLittle(t *testing.T) {
	takesLittle(t, nil, 9<<10, func() int {
		all := make([]byte, 8<<20)
		return bytes.Count(all[:runtime.Stack(all, true)], []byte("conn.(*Conn).rest("))
	})
}

// takesLittle fails if connections that wait take more bytes each, with the client's half.
func takesLittle(t *testing.T, poller *conn.Poller, most uint64, resting func() int) {
	t.Helper()
	const conns = 500
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	m, err := metrics.New(noop.NewMeterProvider().Meter(""))
	require.NoError(t, err)
	cfg := config()
	cfg.Poller = poller
	corked := cork.Listen(l, time.Minute, 0)
	h := &handler{messages: make(chan string, 1)}
	used := func() uint64 {
		runtime.GC()
		runtime.GC() // pools give up what they hold with the second one
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc + stats.StackInuse
	}
	before := used()
	clients, ended := make([]net.Conn, conns), make(chan struct{}, conns)
	for i := range clients {
		clients[i], err = new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		require.NoError(t, err)
		defer clients[i].Close()
		server, err := corked.Accept()
		require.NoError(t, err)
		c := accept(t, &cfg, server.(*cork.Conn), m, nil)
		c.Start(h, func() { ended <- struct{}{} })
		_, err = clients[i].Write(frame(0x81, strings.Repeat("x", 900)))
		require.NoError(t, err)
		<-h.messages
		// What silent connections say: the library has to be left after it.
		_, err = clients[i].Write(frame(0x80|opPong, ""))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return resting() == conns }, time.Minute, 100*time.Millisecond, "connections do not come to rest")
	require.Less(t, (used()-before)/conns, most)
	_, err = clients[0].Write(frame(0x81, "again"))
	require.NoError(t, err)
	require.Equal(t, "true again", <-h.messages)
	for _, c := range clients {
		c.Close()
	}
	for range clients {
		<-ended
	}
}
