package fanout

import (
	"errors"
	"time"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/services/fanout/internal/deliver"
	"github.com/apiary-relay/apiary/services/fanout/internal/partition"
)

// Config is what an operator decides about fan-out. Values are bounds; none may be switched off, except
// the drain grace.
type Config struct {
	Partitions    uint32        `help:"Number of partitions; fixed for the life of the cluster." default:"64"`
	QueueItems    int           `help:"Deliveries that may wait for one gateway." default:"16384"`
	QueueBytes    int           `help:"Bytes of deliveries that may wait for one gateway." default:"67108864"`
	MaxHandles    int           `help:"Subscriptions that one gateway may have here." default:"1000000"`
	IdleGrace     time.Duration `help:"How long a partition is consumed after its last subscription has left." default:"30s"`
	Watermark     time.Duration `help:"How often gateways are told how far a partition has come." default:"1s"`
	OpenTimeout   time.Duration `help:"How long a new subscription waits for the bus to be reachable." default:"10s"`
	BusSilence    time.Duration `help:"How long the bus may be silent before gateways are told, so that they go to nodes that hear it." default:"600ms"`
	RecentIDs     int           `name:"recent-ids" help:"Event ids remembered per partition, to drop what is published twice." default:"8192"`
	AccessTimeout time.Duration `help:"Longest wait for one answer of search about access." default:"2s"`
	AccessHold    time.Duration `help:"How long a partition is held while access cannot be decided; then the subscriptions in question are lost." default:"10s"`
	Replays       int           `help:"Replays that run at a time, for gateways that resume." default:"16"`
	ReplayTimeout time.Duration `help:"Longest time for one replay." default:"1m"`
	ReplayItems   int           `help:"Live deliveries held for one gateway and partition during a replay." default:"16384"`
	ReplayBytes   int           `help:"Bytes of live deliveries held for one gateway and partition during a replay." default:"16777216"`
	DrainGrace    time.Duration `help:"How long gateways may take to move elsewhere before a node that stops ends their streams." default:"3s"`
}

// DefaultConfig returns the defaults of the tags.
func DefaultConfig() Config { return config.MustDefault(Config{}) }

// maxPartitions keeps a typing error from starting millions of goroutines.
const maxPartitions = 4096

// Validate reports everything that cannot work.
func (c *Config) Validate() error {
	return errors.Join(
		config.Positive("partitions", c.Partitions),
		config.Positive("queue-items", c.QueueItems),
		config.Positive("queue-bytes", c.QueueBytes),
		config.Positive("max-handles", c.MaxHandles),
		config.Positive("idle-grace", c.IdleGrace),
		config.Positive("watermark", c.Watermark),
		config.Positive("open-timeout", c.OpenTimeout),
		config.Positive("bus-silence", c.BusSilence),
		config.Positive("recent-ids", c.RecentIDs),
		config.Positive("access-timeout", c.AccessTimeout),
		config.Positive("access-hold", c.AccessHold),
		config.Positive("replays", c.Replays),
		config.Positive("replay-timeout", c.ReplayTimeout),
		config.Positive("replay-items", c.ReplayItems),
		config.Positive("replay-bytes", c.ReplayBytes),
		config.AtMost("partitions", c.Partitions, maxPartitions),
		config.NotNegative("drain-grace", c.DrainGrace),
	)
}

func (c *Config) link() deliver.Limits {
	return deliver.Limits{Items: c.QueueItems, Bytes: c.QueueBytes, Handles: c.MaxHandles}
}

func (c *Config) partition() partition.Config {
	return partition.Config{
		Partitions: c.Partitions, IdleGrace: c.IdleGrace, WatermarkInterval: c.Watermark, OpenTimeout: c.OpenTimeout,
		RecentIDs: c.RecentIDs, AccessTimeout: c.AccessTimeout, AccessHold: c.AccessHold,
		HoldItems: c.ReplayItems, HoldBytes: c.ReplayBytes, ReplayTimeout: c.ReplayTimeout,
	}
}
