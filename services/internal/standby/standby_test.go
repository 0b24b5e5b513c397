package standby_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/goleak"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/apiary-relay/apiary/pkg/admin"
	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	"github.com/apiary-relay/apiary/services/audit"
	"github.com/apiary-relay/apiary/services/internal/standby"
	"github.com/apiary-relay/apiary/services/media"
	"github.com/apiary-relay/apiary/services/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// checks keeps the last check that was added.
type checks struct{ check admin.Check }

func (c *checks) AddCheck(_ string, check admin.Check) { c.check = check }

// whileRunning runs a service, calls fn once it is ready, and stops it.
func whileRunning(t *testing.T, svc lifecycle.Service, fn func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done, ready := make(chan error, 1), make(chan struct{})
	go func() { done <- svc.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
		fn()
	case err := <-done:
		require.NoError(t, err, "start")
	}
	cancel()
	require.NoError(t, <-done)
}

// Each service gets in with the role of its own configuration, whoever logs in.
func TestOwnRole(t *testing.T) {
	for name, build := range map[string]func(config.Secret, standby.Deps) (lifecycle.Service, error){
		"audit": func(url config.Secret, deps standby.Deps) (lifecycle.Service, error) {
			cfg := audit.DefaultConfig()
			cfg.GRPC.Listen = ""
			cfg.Postgres.URL = url
			return audit.New(cfg, deps)
		},
		"workflow": func(url config.Secret, deps standby.Deps) (lifecycle.Service, error) {
			cfg := workflow.DefaultConfig()
			cfg.GRPC.Listen = ""
			cfg.Postgres.URL = url
			return workflow.New(cfg, deps)
		},
		"media": func(url config.Secret, deps standby.Deps) (lifecycle.Service, error) {
			cfg := media.DefaultConfig()
			cfg.GRPC.Listen = ""
			cfg.Postgres.URL = url
			return media.New(cfg, deps)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &checks{}
			deps := inMemory(c)
			svc, err := build(config.NewSecret(pgtest.URL(t)), deps)
			require.NoError(t, err)
			whileRunning(t, svc, func() {
				require.NoError(t, c.check(t.Context()))
				requireServing(t, deps.RPC)
			})
		})
	}
}

const memoryName = "standby"

func inMemory(c standby.Checks) standby.Deps {
	return standby.Deps{RPC: rpc.Deps{Memory: rpc.NewMemory()}, Checks: c, MemoryName: memoryName}
}

func requireServing(t *testing.T, deps rpc.Deps) {
	t.Helper()
	conn, err := rpc.Dial("mem:///"+memoryName, deps)
	require.NoError(t, err)
	defer conn.Close()
	resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, resp.GetStatus())
}

func standbyConfig(t *testing.T, role string) postgres.Config {
	t.Helper()
	cfg := config.MustDefault(postgres.Config{Role: role})
	cfg.URL = config.NewSecret(pgtest.URL(t))
	return cfg
}

func TestMissingRoleIsReported(t *testing.T) {
	c := &checks{}
	svc, err := standby.New(standbyConfig(t, "apiary_nobody"), rpc.ServerConfig{}, inMemory(c))
	require.NoError(t, err)
	whileRunning(t, svc, func() { require.ErrorContains(t, c.check(t.Context()), "apiary_nobody") })
}

// A database that is away is a line in the report and nothing else.
func TestReadyWithoutDatabase(t *testing.T) {
	health, err := admin.NewHealth(slog.New(slog.DiscardHandler), noop.Meter{})
	require.NoError(t, err)
	cfg := audit.DefaultConfig()
	cfg.GRPC.Listen = "127.0.0.1:0"
	cfg.Postgres.URL = config.NewSecret("postgres://127.0.0.1:1/apiary")
	svc, err := audit.New(cfg, standby.Deps{Checks: health})
	require.NoError(t, err)
	whileRunning(t, svc, func() {
		require.Equal(t, []admin.Dependency{{Name: "postgres"}}, health.Dependencies())
	})
}

func TestNewRefuses(t *testing.T) {
	_, err := standby.New(postgres.Config{MaxConns: 1}, rpc.ServerConfig{}, standby.Deps{})
	require.ErrorContains(t, err, "role")
	_, err = standby.New(postgres.Config{Role: "x"}, rpc.ServerConfig{}, standby.Deps{})
	require.ErrorContains(t, err, "max-conns")
}

func TestMalformedURL(t *testing.T) {
	cfg := config.MustDefault(postgres.Config{Role: "x", URL: config.NewSecret("postgres://%")})
	_, err := standby.New(cfg, rpc.ServerConfig{}, inMemory(&checks{}))
	require.ErrorContains(t, err, "url is not one of Postgres")
}
