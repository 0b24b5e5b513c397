package conn

import (
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

func TestHeaders(t *testing.T) {
	mask := "\x01\x02\x03\x04"
	for _, test := range []struct {
		in     string
		length int64
		opcode byte
		final  bool
	}{
		{"\x81\x80" + mask, 0, opText, true},
		{"\x01\xfd" + mask, 125, opText, false},
		{"\x82\xfe\x00\x7e" + mask, 126, opBinary, true},
		{"\x80\xfe\xff\xff" + mask, 65535, opContinuation, true},
		{"\x81\xff\x00\x00\x00\x00\x00\x01\x00\x00" + mask, 65536, opText, true},
		{"\x89\xfd" + mask, 125, opPing, true},
	} {
		for n := range len(test.in) {
			_, size, err := parseHeader([]byte(test.in[:n]))
			require.NoError(t, err)
			require.Zero(t, size, "%x", test.in[:n])
		}
		h, size, err := parseHeader([]byte(test.in + "more"))
		require.NoError(t, err)
		require.Equal(t, len(test.in), size)
		require.Equal(t, header{final: test.final, opcode: test.opcode, length: test.length, mask: [4]byte([]byte(mask))}, h)
	}
	for in, want := range map[string]error{
		"\xc1\x80": errReserved, "\x81\x00": errUnmasked, "\x83\x80": errOpcode, "\x8b\x80": errOpcode,
		"\x09\x80": errControl, "\x89\xfe": errControl, "\x81\xff\xff\x00\x00\x00\x00\x00\x00\x00" + mask: errLength,
	} {
		_, _, err := parseHeader([]byte(in))
		require.ErrorIs(t, err, want, "%x", in)
		require.True(t, isViolation(err))
	}
}

func TestUnmask(t *testing.T) {
	mask := [4]byte{0xa1, 0xb2, 0xc3, 0xd4}
	for n := range 40 {
		for offset := range int64(9) {
			payload, want := make([]byte, n), make([]byte, n)
			for i := range payload {
				payload[i] = byte(7 * i)
				want[i] = payload[i] ^ mask[(offset+int64(i))%4]
			}
			unmask(payload, mask, offset)
			require.Equal(t, want, payload)
		}
	}
}

func TestCloseCodes(t *testing.T) {
	for in, want := range map[string]websocket.StatusCode{
		"": websocket.StatusNoStatusRcvd, "\x03\xe8": 1000, "\x03\xe9bye": 1001, "\x0b\xb8": 3000, "\x13\x87": 4999,
	} {
		code, err := closeCode([]byte(in))
		require.NoError(t, err)
		require.Equal(t, want, code)
	}
	for _, in := range []string{"\x03", "\x03\xe7", "\x03\xec", "\x03\xed", "\x03\xee", "\x03\xf7", "\x0b\xb7", "\x13\x88"} {
		_, err := closeCode([]byte(in))
		require.ErrorIs(t, err, errCloseFrame, "%x", in)
	}
}
