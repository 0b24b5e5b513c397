package partition

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/services/fanout/internal/access"
)

// Config bounds a partition; every field must be positive.
type Config struct {
	// Partitions is the cluster's number of partitions.
	Partitions uint32
	// IdleGrace is how long the streams are consumed after the last subscription has left.
	IdleGrace time.Duration
	// WatermarkInterval is the pause between watermarks; also the resolution of the other long timers.
	WatermarkInterval time.Duration
	// OpenTimeout is how long a subscription waits for the streams to be reachable.
	OpenTimeout time.Duration
	// RecentIDs is how many event ids are remembered to drop what the outbox published again.
	RecentIDs int
	// AccessTimeout bounds one question to search, AccessHold how long an envelope waits for an answer.
	AccessTimeout time.Duration
	AccessHold    time.Duration
	// HoldItems and HoldBytes bound what is held for one gateway's replay.
	HoldItems int
	HoldBytes int
	// ReplayTimeout bounds one replay.
	ReplayTimeout time.Duration
}

// Bus is what a partition needs of the bus; *bus.Bus satisfies it.
type Bus interface {
	StreamState(ctx context.Context, stream string) (bus.State, error)
	ConsumeOrdered(ctx context.Context, stream, subject string, startSeq uint64, handle func(context.Context, bus.Msg) error, opts ...bus.OrderedOption) error
	Replay(ctx context.Context, stream, subject string, from, to uint64, handle func(context.Context, bus.Msg) error, opts ...bus.OrderedOption) error
}

// Deps is what a partition uses. All fields are required.
type Deps struct {
	Log    *slog.Logger
	Tracer trace.Tracer
	Bus    Bus
	Access access.Checker
	// Metrics are shared by the partitions of a node.
	Metrics *Metrics
	// Replays holds one token for each replay that may run on the node at a time.
	Replays chan struct{}
}
