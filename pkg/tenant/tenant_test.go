package tenant_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/tenant"
)

func TestNormalizeHost(t *testing.T) {
	long := strings.Repeat("a.", 126) + "a"
	for _, c := range []struct{ name, in, want string }{
		{"plain", "relay.example.com", "relay.example.com"},
		{"case", "Relay.EXAMPLE.com", "relay.example.com"},
		{"blanks around", " \trelay.example.com\r\n", "relay.example.com"},
		{"port 80", "relay.example.com:80", "relay.example.com"},
		{"port 443", "relay.example.com:443", "relay.example.com"},
		{"other port", "relay.example.com:3000", "relay.example.com:3000"},
		{"leading zeros", "relay.example.com:0443", "relay.example.com"},
		{"highest port", "a:65535", "a:65535"},
		{"trailing dot", "relay.example.com.", "relay.example.com"},
		{"trailing dot and default port", "relay.example.com.:443", "relay.example.com"},
		{"trailing dot and port", "relay.example.com.:3000", "relay.example.com:3000"},
		{"loopback v4", "127.0.0.1", "localhost"},
		{"loopback v4 with port", "127.0.0.1:3000", "localhost:3000"},
		{"loopback v6", "[::1]", "localhost"},
		{"loopback v6 with port", "[::1]:3000", "localhost:3000"},
		{"loopback v6 written out", "[0:0:0:0:0:0:0:1]:80", "localhost"},
		{"localhost", "LOCALHOST:3000", "localhost:3000"},
		{"other v4", "10.0.0.1:3000", "10.0.0.1:3000"},
		{"v6", "[2001:DB8:0::1]:3000", "[2001:db8::1]:3000"},
		{"underscore", "relay_1:3000", "relay_1:3000"},
		{"longest name", long, long},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := tenant.NormalizeHost(c.in)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestNormalizeHostFailsClosed(t *testing.T) {
	for _, in := range []string{
		"", " ", ".", "..", "a..b", ".a", "a..", ":80", "a:", "a:0", "a:65536", "a:123456", "a:8o", "a:-1", "a:80:80",
		"wss://a", "a/b", "a?b", "a#b", "u@a", "a b", "a,b", "a%20b", "ä.example", "\u212aelvin", "a\x00b",
		"::1", "[::1", "[::1]x", "[::1]:", "[]", "[127.0.0.1]", "[fe80::1%eth0]", "[::g]",
		strings.Repeat("a", 64) + ".example", strings.Repeat("a.", 127) + "a", strings.Repeat("a", 300),
	} {
		got, err := tenant.NormalizeHost(in)
		require.ErrorIs(t, err, tenant.ErrHost, "%q", in)
		require.Empty(t, got, "%q", in)
		require.ErrorIs(t, tenant.ValidateHost(in), tenant.ErrHost, "%q", in)
	}
}

func TestValidateHost(t *testing.T) {
	for _, ok := range []string{"a", "relay.example.com", "relay.example.com:3000", "localhost:3000", "[2001:db8::1]", "x--y.example"} {
		require.NoError(t, tenant.ValidateHost(ok), ok)
	}
	for _, bad := range []string{
		"Relay.example.com", "relay.example.com:443", "relay.example.com.", "127.0.0.1", "[::1]:3000", " a", "a_b.example",
		"-a.example", "a-.example", "a.-b", "[2001:DB8::1]",
	} {
		require.ErrorIs(t, tenant.ValidateHost(bad), tenant.ErrHost, bad)
	}
}

func TestCandidates(t *testing.T) {
	require.Equal(t, []string{"a.example"}, tenant.Candidates("a.example"))
	require.Equal(t, []string{"a.example:3000", "a.example"}, tenant.Candidates("a.example:3000"))
	require.Equal(t, []string{"[2001:db8::1]"}, tenant.Candidates("[2001:db8::1]"))
	require.Equal(t, []string{"[2001:db8::1]:3000", "[2001:db8::1]"}, tenant.Candidates("[2001:db8::1]:3000"))
}

// Whatever comes in, what goes out is a fixed point whose every candidate is one too.
func TestNormalizeHostIsIdempotent(t *testing.T) {
	host := rapid.OneOf(
		rapid.StringMatching(`[ ]?[A-Za-z0-9_-]{1,6}(\.[A-Za-z0-9_-]{1,6}){0,3}\.?(:[0-9]{1,5})?[ ]?`),
		rapid.StringMatching(`\[[0-9A-Fa-f:]{2,20}\](:[0-9]{1,5})?`),
		rapid.String(),
	)
	rapid.Check(t, func(t *rapid.T) {
		once, err := tenant.NormalizeHost(host.Draw(t, "host"))
		if err != nil {
			return
		}
		for _, c := range tenant.Candidates(once) {
			twice, err := tenant.NormalizeHost(c)
			require.NoError(t, err)
			require.Equal(t, c, twice)
		}
	})
}

func TestContext(t *testing.T) {
	_, ok := tenant.From(t.Context())
	require.False(t, ok)
	id, ok := tenant.From(tenant.With(t.Context(), 42))
	require.True(t, ok)
	require.Equal(t, tenant.ID(42), id)
	require.Equal(t, "42", id.String())
	require.Equal(t, "community=42", tenant.Attr(id).String())
}
