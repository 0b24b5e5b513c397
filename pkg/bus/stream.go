package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/apiary-relay/apiary/pkg/bus/subject"
)

// Stream properties that clients' promises depend on, so they are not configurable.
const (
	eventsMaxAge      = 24 * time.Hour
	eventsDuplicates  = 10 * time.Minute
	ephemeralMaxAge   = 60 * time.Second
	ephemeralDupes    = 60 * time.Second
	defaultPartitions = 64
	// askTimeout bounds the question whether a stream is there. Servers of a cluster that have no leader yet drop it without
	// an answer; whoever waited for one until its own deadline would miss the leader that is elected a second later.
	askTimeout = 2 * time.Second
	// metaPartitions records the number of partitions, which is fixed for a cluster's life.
	metaPartitions = "apiary.partitions"
)

// ErrPartitions says that the cluster was made with another number of partitions.
var ErrPartitions = errors.New("the number of partitions cannot change")

// StreamOptions are what the operator chooses about the streams.
type StreamOptions struct {
	Replicas          int    `help:"Copies of each stream: 3 in a NATS cluster, 1 alone." default:"1"`
	Partitions        uint32 `help:"Number of partitions; fixed for the life of the cluster." default:"64"`
	EventsMaxBytes    int64  `help:"Most bytes that EVENTS keeps on disk; the oldest go first." default:"8589934592"`
	EphemeralMaxBytes int64  `help:"Most bytes that EPHEMERAL keeps in memory; the oldest go first." default:"268435456"`
}

func (o *StreamOptions) setDefaults() {
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.Partitions == 0 {
		o.Partitions = defaultPartitions
	}
	if o.EventsMaxBytes == 0 {
		o.EventsMaxBytes = 8 << 30
	}
	if o.EphemeralMaxBytes == 0 {
		o.EphemeralMaxBytes = 256 << 20
	}
}

func (o *StreamOptions) configs() []jetstream.StreamConfig {
	meta := map[string]string{metaPartitions: strconv.FormatUint(uint64(o.Partitions), 10)}
	return []jetstream.StreamConfig{{
		Name: subject.StreamEvents, Subjects: []string{subject.AllEvents}, Storage: jetstream.FileStorage,
		Description: "Committed events, by partition.", Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		MaxAge: eventsMaxAge, MaxBytes: o.EventsMaxBytes, Duplicates: eventsDuplicates, Replicas: o.Replicas, Metadata: meta,
	}, {
		Name: subject.StreamEphemeral, Subjects: []string{subject.AllEphemeral}, Storage: jetstream.MemoryStorage,
		Description: "Ephemeral events, by partition.", Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		MaxAge: ephemeralMaxAge, MaxBytes: o.EphemeralMaxBytes, Duplicates: ephemeralDupes, Replicas: o.Replicas, Metadata: meta,
	}}
}

// EnsureStreams makes the streams, or brings their configuration up to date. It is idempotent and may be
// called by several processes at once. It fails with ErrDisconnected while the server is away; with ErrUnacknowledged,
// after two seconds, when the server does not say whether there are streams, as one whose cluster has no leader yet; and
// with ErrPartitions, changing nothing, when the streams were made for another number of partitions.
func (b *Bus) EnsureStreams(ctx context.Context, opts StreamOptions) error {
	opts.setDefaults()
	configs := opts.configs()
	for i := range configs {
		if err := b.ensureStream(ctx, configs[i]); err != nil {
			return fmt.Errorf("ensure stream %s: %w", configs[i].Name, err)
		}
	}
	return nil
}

func (b *Bus) ensureStream(ctx context.Context, want jetstream.StreamConfig) error {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	stream, err := b.js.Stream(asking, want.Name)
	cancel()
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		var refused error
		stream, refused = b.js.CreateStream(ctx, want)
		if refused != nil {
			// Perhaps because another process made it just now, with other properties; the server has several
			// ways to say so. If it is still not there, the refusal is what matters.
			if stream, err = b.js.Stream(ctx, want.Name); errors.Is(err, jetstream.ErrStreamNotFound) {
				err = refused
			}
		} else {
			err = nil
		}
	}
	if err != nil {
		return translate(err)
	}
	have := stream.CachedInfo().Config
	if p, ok := have.Metadata[metaPartitions]; ok && p != want.Metadata[metaPartitions] {
		return fmt.Errorf("%w: have %s, asked for %s", ErrPartitions, p, want.Metadata[metaPartitions])
	}
	if sameConfig(have, want) {
		return nil
	}
	if _, err := b.js.UpdateStream(ctx, want); err != nil {
		return translate(err)
	}
	return nil
}

// sameConfig compares what this package sets; the server fills in the rest.
func sameConfig(a, b jetstream.StreamConfig) bool {
	return len(a.Subjects) == 1 && a.Subjects[0] == b.Subjects[0] && a.Storage == b.Storage && a.Description == b.Description &&
		a.Retention == b.Retention && a.Discard == b.Discard && a.MaxAge == b.MaxAge && a.MaxBytes == b.MaxBytes &&
		a.Duplicates == b.Duplicates && a.Replicas == b.Replicas && a.Metadata[metaPartitions] == b.Metadata[metaPartitions]
}

// StreamState asks the server what a stream holds. It fails with ErrNoStream when there is none.
func (b *Bus) StreamState(ctx context.Context, stream string) (State, error) {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return State{}, fmt.Errorf("read state of stream %s: %w", stream, translate(err))
	}
	info := s.CachedInfo()
	state := State{
		Epoch: uint64(info.Created.UnixNano()), FirstSeq: info.State.FirstSeq, LastSeq: info.State.LastSeq,
		Messages: info.State.Msgs, Bytes: info.State.Bytes,
	}
	if state.Messages == 0 {
		state.FirstSeq = state.LastSeq + 1
	}
	return state, nil
}

// stateCache shares one stream's state between the consumers of a Bus, which all ask every second or two.
type stateCache struct {
	mu    sync.Mutex
	at    time.Time // when state was asked for
	state State
}

// stateSince is a stream's state as of some moment not before since.
func (b *Bus) stateSince(ctx context.Context, stream string, since time.Time) (State, error) {
	b.mu.Lock()
	cache, ok := b.states[stream]
	if !ok { // bounded: there is one entry for each stream that is consumed
		cache = &stateCache{}
		b.states[stream] = cache
	}
	b.mu.Unlock()
	cache.mu.Lock()
	defer cache.mu.Unlock()
	if !cache.at.Before(since) {
		return cache.state, nil
	}
	at := time.Now()
	state, err := b.StreamState(ctx, stream)
	if err != nil {
		return State{}, err
	}
	cache.at, cache.state = at, state
	return state, nil
}
