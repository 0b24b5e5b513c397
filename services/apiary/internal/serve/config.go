package serve

import (
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/datadir"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/services/apiary"
	"github.com/apiary-relay/apiary/services/internal/boot"
)

// Config is the settings of the all-in-one as a process.
type Config struct {
	Data     string `help:"Data directory. Default: /var/lib/apiary for root, apiary among the user's data otherwise." placeholder:"DIR"`
	DataHome string `help:"Where the user's data are." env:"XDG_DATA_HOME" hidden:""`
	Listen   string `help:"Address for clients; the same as --gateway.listen." placeholder:"HOST:PORT" hostport:"empty"`

	Postgres PostgresConfig `embed:"" prefix:"postgres."`
	NATS     NATSConfig     `embed:"" prefix:"nats."`
	Process  boot.Config    `embed:""`
	Services apiary.Config  `embed:""`
}

// PostgresConfig says where the data are.
type PostgresConfig struct {
	URL      config.Secret `help:"Postgres to use. Empty runs a private one in the data directory, from this machine's binaries." env:"DATABASE_URL"`
	MaxConns int32         `help:"Most connections of each of the two pools, of the writer and of the reader." default:"10"`
}

// NATSConfig bounds what the embedded NATS keeps.
type NATSConfig struct {
	MaxStore  int64 `help:"Bytes on disk for events that wait to be delivered." default:"10737418240"`
	MaxMemory int64 `help:"Bytes of memory for ephemeral events." default:"536870912"`
}

// autoAdmin is the admin listener's usual address if it is free, and any free one otherwise.
const autoAdmin = "auto"

// DefaultConfig returns the settings that differ for one process at a person's terminal: the log says only
// what needs attention, the admin listener finds a place, and a stop takes less than ten seconds; and no more queries run
// at a time than the reader's pool has connections for by default, since those that wait there wait in the order of their coming.
func DefaultConfig() Config {
	var c Config
	c.Process.Log.Level = slog.LevelWarn
	c.Process.Admin.Listen = autoAdmin
	c.Process.Drain.Timeout = 4 * time.Second
	c.Services.Gateway.MaxQueries = 8
	c.Process.StartTimeout = 5 * time.Minute // a private Postgres may have to recover after a crash
	return c
}

// Validate reports what cannot work.
func (c *PostgresConfig) Validate() error {
	return errors.Join(postgres.CheckURL(c.URL), config.Positive("max-conns", c.MaxConns))
}

// Validate reports what cannot work.
func (c *NATSConfig) Validate() error {
	return errors.Join(config.Positive("max-store", c.MaxStore), config.Positive("max-memory", c.MaxMemory))
}

// DataDir returns the data directory that was asked for, or the default, as an absolute path.
func DataDir(asked, dataHome string) (string, error) {
	if asked == "" {
		return datadir.Default("apiary", dataHome)
	}
	return filepath.Abs(asked)
}
