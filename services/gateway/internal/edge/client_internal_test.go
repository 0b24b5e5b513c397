package edge

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClientAddr(t *testing.T) {
	trusted, err := ParseNetworks([]string{"10.0.0.0/8", "::1", "::ffff:192.168.0.1"})
	require.NoError(t, err)
	for _, tt := range []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"the peer", "192.0.2.1:5", nil, "192.0.2.1"},
		{"a peer nobody trusts", "192.0.2.1:5", []string{"198.51.100.1"}, "192.0.2.1"},
		{"mapped", "[::ffff:192.0.2.1]:5", nil, "192.0.2.1"},
		{"with a zone", "[fe80::1%eth0]:5", nil, "fe80::1"},
		{"a proxy", "10.0.0.1:5", []string{"198.51.100.1"}, "198.51.100.1"},
		{"an invention before it", "10.0.0.1:5", []string{"203.0.113.1, 198.51.100.1"}, "198.51.100.1"},
		{"several headers", "10.0.0.1:5", []string{"203.0.113.1", "198.51.100.1,10.2.2.2"}, "198.51.100.1"},
		{"IPv6", "[::1]:5", []string{"2001:db8::1"}, "2001:db8::1"},
		{"with a port", "192.168.0.1:5", []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{"nothing but proxies", "10.0.0.1:5", []string{"10.3.3.3"}, "10.3.3.3"},
		{"no header", "10.0.0.1:5", nil, "10.0.0.1"},
		{"nonsense", "10.0.0.1:5", []string{"198.51.100.1, unknown"}, "10.0.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &http.Request{RemoteAddr: tt.peer, Header: http.Header{"X-Forwarded-For": tt.forwarded}}
			require.Equal(t, tt.want, clientAddr(r, trusted).String())
		})
	}
	require.False(t, clientAddr(&http.Request{RemoteAddr: "@"}, trusted).IsValid())
	_, err = ParseNetworks([]string{"10.0.0.0/8", "x"})
	require.Error(t, err)
}
