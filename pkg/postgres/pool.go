package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/apiary-relay/apiary/pkg/config"
)

// Config is one service's connection to Postgres.
type Config struct {
	URL              config.Secret `help:"Postgres URL (postgres://user:password@host:5432/database). The user must be a member of the service roles." default:"postgres://localhost:5432/apiary" env:"APIARY_POSTGRES_URL,DATABASE_URL"`
	Role             string        `help:"Role taken with SET ROLE on every connection; empty keeps the user's own rights."`
	MaxConns         int32         `help:"Most connections in the pool." default:"10"`
	StatementTimeout time.Duration `help:"Longest time one statement may run; 0 is no limit." default:"10s"`
	LockTimeout      time.Duration `help:"Longest time a statement waits for a lock; 0 is no limit." default:"3s"`
	IdleTxTimeout    time.Duration `help:"Longest time a transaction may sit idle; 0 is no limit." default:"10s"`
	ConnectTimeout   time.Duration `help:"Longest time to open a connection." default:"5s"`
	AppName          string        `help:"application_name shown in pg_stat_activity." default:"apiary"`
}

// Validate reports what cannot work.
func (c *Config) Validate() error {
	return errors.Join(
		CheckURL(c.URL),
		config.Positive("max-conns", c.MaxConns),
		config.NotNegative("statement-timeout", c.StatementTimeout),
		config.NotNegative("lock-timeout", c.LockTimeout),
		config.NotNegative("idle-tx-timeout", c.IdleTxTimeout),
		config.Positive("connect-timeout", c.ConnectTimeout),
	)
}

// CheckURL says what keeps url from naming a database; nothing is connected to. Passwords are not in the error.
func CheckURL(url config.Secret) error {
	if _, err := pgx.ParseConfig(url.Reveal()); err != nil {
		return fmt.Errorf("url is not one of Postgres, such as postgres://user@host:5432/database: %w", err)
	}
	return nil
}

// PoolOptions are what a pool may be given besides its Config.
type PoolOptions struct {
	// ReadOnly makes every transaction read-only, whatever the role may do.
	ReadOnly bool
	// TracerProvider makes a span per statement; nil makes none.
	TracerProvider trace.TracerProvider
	// MeterProvider counts the pool's connections and waits; nil counts nothing.
	MeterProvider metric.MeterProvider
}

// NewPool makes a pool. It does not wait for the server: statements fail until it can be reached. Unless it is
// read-only a commit is answered only when it is on the server's disk, also where the server or the database says
// otherwise (synchronous_commit = off). The caller closes the pool.
func NewPool(ctx context.Context, cfg Config, opts PoolOptions) (*pgxpool.Pool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure postgres: %w", err)
	}
	pc, err := pgxpool.ParseConfig(cfg.URL.Reveal())
	if err != nil {
		return nil, fmt.Errorf("parse postgres url: %w", err)
	}
	pc.MaxConns = cfg.MaxConns
	pc.MaxConnLifetime = time.Hour
	pc.MaxConnLifetimeJitter = 10 * time.Minute
	pc.ConnConfig.ConnectTimeout = cfg.ConnectTimeout
	params := pc.ConnConfig.RuntimeParams
	params["application_name"] = cfg.AppName
	params["statement_timeout"] = milliseconds(cfg.StatementTimeout)
	params["lock_timeout"] = milliseconds(cfg.LockTimeout)
	params["idle_in_transaction_session_timeout"] = milliseconds(cfg.IdleTxTimeout)
	params["timezone"] = "UTC"
	if cfg.Role != "" {
		params["role"] = cfg.Role
	}
	if opts.ReadOnly {
		params["default_transaction_read_only"] = "on"
	} else {
		pc.AfterConnect = waitForDisk(cfg.ConnectTimeout)
	}
	if opts.TracerProvider != nil {
		pc.ConnConfig.Tracer = otelpgx.NewTracer(otelpgx.WithTracerProvider(opts.TracerProvider),
			otelpgx.WithDisableConnectionDetailsInAttributes())
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("make postgres pool: %w", err)
	}
	if opts.MeterProvider != nil {
		if err := otelpgx.RecordStats(pool, otelpgx.WithStatsMeterProvider(opts.MeterProvider)); err != nil {
			pool.Close()
			return nil, fmt.Errorf("count postgres pool: %w", err)
		}
	}
	return pool, nil
}

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(d.Milliseconds(), 10)
}
