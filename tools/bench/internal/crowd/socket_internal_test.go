package crowd

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What has come is told before anything else is waited for: a reader that waited first would tell of the last delivery of
// a round never.
func TestEachTellsWhatIsThere(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	require.NoError(t, here.SetDeadline(time.Now().Add(20*time.Second)))
	s := &Socket{conn: here, buf: make([]byte, 16)}
	go func() { _, _ = there.Write([]byte{0x81, 2, 'h', 'i', 0x8a, 0, 0x81, 3, 'y', 'o', 'u', 0x81, 20, 'c'}) }()
	var got []string
	require.NoError(t, s.Each(func(payload []byte) { got = append(got, string(payload)) }))
	require.Equal(t, []string{"hi", "you"}, got)

	go func() { _, _ = there.Write([]byte("ut at the 16th byte")) }()
	got = nil
	require.NoError(t, s.Each(func(payload []byte) { got = append(got, string(payload)) }))
	require.Equal(t, []string{"cut at the 16th byte"}, got)

	there.Close()
	require.Error(t, s.Each(func([]byte) {}))
}

// A server that parts with a subscriber loses what that does not get; the round goes on.
func TestWhoIsCutOffLosesTheRest(t *testing.T) {
	here, there := net.Pipe()
	c := &Crowd{}
	c.readers.Go(func() { c.listen(&listener{socket: &Socket{conn: here, buf: make([]byte, 16)}}) })
	require.Zero(t, c.Cut())
	there.Close()
	c.readers.Wait()
	require.Equal(t, 1, c.Cut())
	require.Nil(t, c.failed.Load())
}
