package gateway_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// netDialer dials with a small receive buffer, so that a client that does not read is noticed soon.
type netDialer struct{ buffer int }

func (d *netDialer) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return c, c.(*net.TCPConn).SetReadBuffer(d.buffer)
		},
	}}
}

// readFrame reads one unmasked frame.
func readFrame(tb testing.TB, r *bufio.Reader) (opcode byte, payload []byte) {
	tb.Helper()
	var h [2]byte
	_, err := io.ReadFull(r, h[:])
	require.NoError(tb, err)
	require.Equal(tb, byte(0x80), h[0]&0xf0, "FIN and no reserved bits")
	require.Zero(tb, h[1]&0x80, "servers do not mask")
	n := uint64(h[1])
	switch n {
	case 126:
		var b [2]byte
		_, err = io.ReadFull(r, b[:])
		n = uint64(binary.BigEndian.Uint16(b[:]))
	case 127:
		var b [8]byte
		_, err = io.ReadFull(r, b[:])
		n = binary.BigEndian.Uint64(b[:])
	}
	require.NoError(tb, err)
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	require.NoError(tb, err)
	return h[0] & 0x0f, payload
}
