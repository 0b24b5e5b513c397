package bus

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/metric"
)

type Config struct {
	URL string
}
type Options struct {
	Name      string
	InProcess nats.InProcessConnProvider
	Log       *slog.Logger
	Meter     metric.Meter
}
type (
	Bus           struct{}
	StreamOptions struct {
		Replicas          int
		EventsMaxBytes    int64
		EphemeralMaxBytes int64
		EventsMaxAge      time.Duration
	}
)
type Future struct{}

var errSkeleton = ErrDisconnected

func Connect(ctx context.Context, cfg Config, opts Options) (*Bus, error) { return nil, errSkeleton }

func (b *Bus) Close() error { return nil }

func (b *Bus) Connected() bool { return false }

func (b *Bus) Changed() <-chan struct{} { return nil }
func (b *Bus) MaxPayload() int64        { return 0 }
func (b *Bus) EnsureStreams(ctx context.Context, opts StreamOptions) error { return errSkeleton }

func (b *Bus) StreamState(ctx context.Context, stream string) (State, error) {
	return State{}, errSkeleton
}

func (b *Bus) Publish(ctx context.Context, subject, msgID string, payload []byte) (Ack, error) {
	return Ack{}, errSkeleton
}

func (b *Bus) PublishAsync(ctx context.Context, subject, msgID string, payload []byte) (*Future, error) {
	return nil, errSkeleton
}

func (f *Future) Wait(ctx context.Context) (Ack, error) { return Ack{}, errSkeleton }

func (b *Bus) Notify(ctx context.Context, subject string, payload []byte) error { return errSkeleton }

func (b *Bus) Listen(ctx context.Context, subject string, handle func(context.Context, Msg), resync func(context.Context)) error {
	return errSkeleton
}

type (
	OrderedOption func(*orderedConfig)
	orderedConfig struct{}
)

func WithEpoch(epoch uint64) OrderedOption { return func(*orderedConfig) {} }

func OnGap(fn func(context.Context, Gap) error) OrderedOption { return func(*orderedConfig) {} }

func OnRecreated(fn func(context.Context, Recreated) error) OrderedOption {
	return func(*orderedConfig) {}
}

func OnProgress(fn func(ctx context.Context, epoch, seq uint64) error) OrderedOption {
	return func(*orderedConfig) {}
}

func (b *Bus) ConsumeOrdered(ctx context.Context, stream, subject string, startSeq uint64, handle func(context.Context, Msg) error, opts ...OrderedOption) error {
	return errSkeleton
}

func (b *Bus) Replay(ctx context.Context, stream, subject string, from, to uint64, handle func(context.Context, Msg) error, opts ...OrderedOption) error {
	return errSkeleton
}

type DurableConfig struct {
	Stream, Name, Subject string
	Batch                 int
	AckWait               time.Duration
}

func (b *Bus) ConsumeDurable(ctx context.Context, cfg DurableConfig, handle func(context.Context, []Msg) error) error {
	return errSkeleton
}
