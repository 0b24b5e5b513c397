package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/config"
)

type listeners struct {
	Listen string `help:"For clients." default:"127.0.0.1:3000" hostport:""`
	Admin  string `help:"For operators." hostport:"empty"`
	GRPC   string `help:"For services." name:"grpc" hostport:"empty,unix"`
	Once   string `help:"Action." env:"-" hostport:"empty"`
}

func TestAddressesAreChecked(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"--listen", ":3000"},
		{"--listen", "0.0.0.0:0"},
		{"--listen", "[::1]:65535"},
		{"--listen", "[fe80::1%eth0]:3000"},
		{"--listen", "relay_1.example:3000"},
		{"--admin", ""},
		{"--grpc", "unix:///run/apiary/grpc"},
	} {
		_, err := config.Parse("relay", &listeners{}, args, config.Options{Environ: []string{}})
		require.NoError(t, err, args)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no port":         {[]string{"--listen", "foo"}, `--listen ($APIARY_LISTEN): "foo" is not HOST:PORT: missing port in address (want one such as 127.0.0.1:3000)`},
		"too many colons": {[]string{"--admin", "1:2:3"}, `--admin ($APIARY_ADMIN): "1:2:3" is not HOST:PORT: too many colons in address (want one such as 127.0.0.1:3000)`},
		"port":            {[]string{"--listen", ":70000"}, `--listen ($APIARY_LISTEN): ":70000" is not HOST:PORT: port "70000" is not a number from 0 to 65535 (want one such as 127.0.0.1:3000)`},
		"no number":       {[]string{"--listen", "localhost:http"}, `--listen ($APIARY_LISTEN): "localhost:http" is not HOST:PORT: port "http" is not a number from 0 to 65535 (want one such as 127.0.0.1:3000)`},
		"URL":             {[]string{"--listen", "[http://x]:1"}, `--listen ($APIARY_LISTEN): "[http://x]:1" is not HOST:PORT: "http://x" is neither a host's name nor an address (want one such as 127.0.0.1:3000)`},
		"empty":           {[]string{"--listen", ""}, `--listen ($APIARY_LISTEN): "" is not HOST:PORT: missing port in address (want one such as 127.0.0.1:3000)`},
		"no socket here":  {[]string{"--admin", "unix:///run/x"}, `--admin ($APIARY_ADMIN): "unix:///run/x" is not HOST:PORT: port "///run/x" is not a number from 0 to 65535 (want one such as 127.0.0.1:3000)`},
		"relative socket": {[]string{"--grpc", "unix://run/x"}, `--grpc ($APIARY_GRPC): "unix://run/x" is not unix:///PATH with an absolute path`},
		"or a socket":     {[]string{"--grpc", "x"}, `--grpc ($APIARY_GRPC): "x" is not HOST:PORT: missing port in address (want one such as 127.0.0.1:7400, or unix:///PATH)`},
		"an argument":     {[]string{"--once", "x"}, `--once: "x" is not HOST:PORT: missing port in address (want one such as 127.0.0.1:3000)`},
	} {
		_, err := config.Parse("relay", &listeners{}, c.args, config.Options{Environ: []string{}})
		require.EqualError(t, err, c.want, name)
	}
}

func TestAnAddressIsNamedByWhereItStands(t *testing.T) {
	_, err := config.Parse("relay", &listeners{}, nil, config.Options{Environ: []string{"APIARY_LISTEN=foo"}})
	require.ErrorContains(t, err, `--listen (from APIARY_LISTEN): "foo" is not HOST:PORT`)
	_, err = config.Parse("relay", &listeners{}, []string{"--config", "relay.yaml"}, config.Options{
		Environ: []string{}, ReadFile: files("relay.yaml", "listen: foo\nadmin: bar"),
	})
	require.ErrorContains(t, err, `--listen (from relay.yaml): "foo" is not HOST:PORT`)
	require.ErrorContains(t, err, `--admin (from relay.yaml): "bar" is not HOST:PORT`)
}

func TestAProgramsOwnDefaultNeedNotBeAnAddress(t *testing.T) {
	for _, args := range [][]string{nil, {"--admin", "auto"}, {"--admin", "127.0.0.1:1"}} {
		_, err := config.Parse("relay", &listeners{Admin: "auto"}, args, config.Options{Environ: []string{}})
		require.NoError(t, err, args)
	}
	_, err := config.Parse("relay", &listeners{}, []string{"--admin", "auto"}, config.Options{Environ: []string{}})
	require.ErrorContains(t, err, `"auto" is not HOST:PORT`)
}

func TestAValueOfTheWrongSortIsNamedByWhereItStands(t *testing.T) {
	_, err := config.Parse("relay", &app{}, nil, config.Options{Environ: []string{"APIARY_STORE_TIMEOUT=never"}})
	require.EqualError(t, err, `--store.timeout (from APIARY_STORE_TIMEOUT): expected duration but got "never": time: invalid duration "never"`)
	_, err = config.Parse("relay", &app{}, []string{"--store.timeout", "never"}, config.Options{Environ: []string{}})
	require.EqualError(t, err, `--store.timeout: expected duration but got "never": time: invalid duration "never"`)
}

type opening struct {
	Open struct {
		Store store     `embed:"" prefix:"store."`
		Doors listeners `embed:""`
		Other store     `embed:"" prefix:"other."`
	} `cmd:"" help:"Opens."`
}

func TestACommandsStructsAreValidatedLikeOthers(t *testing.T) {
	_, err := config.Parse("relay", &opening{}, []string{"open", "--other.max-conns=0", "--store.max-conns=-1", "--listen=x"}, config.Options{Environ: []string{}})
	require.EqualError(t, err, strings.Join([]string{
		`--listen ($APIARY_LISTEN): "x" is not HOST:PORT: missing port in address (want one such as 127.0.0.1:3000)`,
		"store: max-conns is -1", "other: max-conns is 0",
	}, "\n"))
}

func TestBounds(t *testing.T) {
	require.NoError(t, config.Positive("limit", 1))
	require.EqualError(t, config.Positive("limit", 0), "limit must be positive, not 0")
	require.EqualError(t, config.Positive("partitions", uint32(0)), "partitions must be positive, not 0")
	require.EqualError(t, config.Positive("timeout", -time.Second), "timeout must be positive, not -1s")
	require.EqualError(t, config.Positive("timeout", time.Duration(0)), "timeout must be positive, not 0s")
	require.NoError(t, config.NotNegative("limit", int64(0)))
	require.EqualError(t, config.NotNegative("window", -2*time.Minute), "window must not be negative, as -2m is")
	require.NoError(t, config.AtMost("limit", 5, 5))
	require.EqualError(t, config.AtMost("ttl", time.Hour, 5*time.Second), "ttl must be at most 5s, not 1h")
}
