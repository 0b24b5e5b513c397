package presence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

const (
	// syncTimeout is how long it may take to catch up with the bucket.
	syncTimeout = 2 * time.Second
	// announceTimeout bounds the writing of announcements, which wait for it.
	announceTimeout = 2 * time.Second
	// maxInFlight is how many records of one call may be unacknowledged: events share the bus with them.
	maxInFlight = 32
	// sweepsPerTTL is how exactly records expire, but they are looked at once in sweepMost at least.
	sweepsPerTTL = 8
	sweepMost    = time.Second
)

// Bus is where records are kept and departures are published; *bus.Bus is one.
type Bus interface {
	PutKey(ctx context.Context, bucket, key string, value []byte) (*bus.Future, error)
	PutKeyAfter(ctx context.Context, bucket, key string, value []byte, revision uint64) (*bus.Future, error)
	DeleteKey(ctx context.Context, bucket, key string) (*bus.Future, error)
	BucketState(ctx context.Context, bucket string, since time.Time) (bus.State, error)
	Follow(ctx context.Context, bucket string, f bus.Follower) error
	Publish(ctx context.Context, subject, msgID string, payload []byte) (bus.Ack, error)
}

// StateReader reads the access versions that departures are published with; *store.Store does.
type StateReader interface {
	ReadState(ctx context.Context, candidates []*policy.Candidate) (*policy.State, error)
}

// Config is how presence behaves.
type Config struct {
	// TTL is how long a record lives that is not reported again; the bucket's own.
	TTL time.Duration
	// Partitions is the cluster's number of partitions.
	Partitions uint32
}

// Deps is what presence uses.
type Deps struct {
	Bus   Bus
	Store StateReader
	// Key signs what the relay says. Without it nothing is said: questions are refused, and departures not told.
	Key *nostr.SecretKey
	// Now is the clock of what is signed and announced.
	Now func() time.Time
	// Log is for faults; best a sampled one.
	Log *slog.Logger
}

// Service implements ingestv1.PresenceServiceServer and lifecycle.Service. It is safe for concurrent use.
type Service struct {
	ingestv1.UnimplementedPresenceServiceServer
	cfg Config
	Deps
	signers *semaphore.Weighted
	// told holds the departures that were told of this second and later. Only the tell goroutine touches it.
	told map[userKey]int64

	mu   sync.Mutex
	book *book
	// revision is how far the bucket has been followed in the incarnation of the book.
	revision uint64
	// moved is closed when revision has changed; nil while nobody waits.
	moved chan struct{}
	// left are departures to be told; wake has an element when there are some.
	left []departure
	wake chan struct{}
}

// New returns a service; Run makes it follow the bucket.
func New(cfg Config, deps Deps) *Service {
	return &Service{
		cfg: cfg, Deps: deps, signers: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0))),
		book: newBook(), told: make(map[userKey]int64), wake: make(chan struct{}, 1),
	}
}

// Run follows the bucket until ctx ends.
func (s *Service) Run(ctx context.Context, ready func()) error {
	ready()
	var wg sync.WaitGroup
	wg.Go(func() { s.sweep(ctx) })
	wg.Go(func() { s.tell(ctx) })
	err := s.Bus.Follow(ctx, subject.BucketPresence, bus.Follower{Begin: s.begin, Each: func(e bus.Entry) { s.take(ctx, e) }})
	wg.Wait()
	if ctx.Err() == nil {
		return fmt.Errorf("follow bucket: %w", err)
	}
	return nil
}

// begin notes that the bucket comes again from its beginning.
func (s *Service) begin(epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.epoch = epoch
	s.movedLocked(0)
}

// take enters an entry into the book.
func (s *Service) take(ctx context.Context, e bus.Entry) {
	community, pubkey, gateway, err := subject.ParsePresenceKey(e.Key)
	var record busv1.PresenceRecord
	if err == nil {
		err = proto.Unmarshal(e.Value, &record)
	}
	if err != nil {
		s.Log.LogAttrs(ctx, slog.LevelWarn, "presence record not understood", slog.Any("error", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.movedLocked(e.Revision)
	k := userKey{community: community, pubkey: pubkey}
	switch {
	case err != nil:
	case !e.Deleted:
		s.book.record(k, gateway, &record, e.Revision, time.Now())
	default:
		if d, ok := s.book.remove(k, gateway, e.Revision, time.Now()); ok {
			s.leaveLocked(d)
		}
	}
}

// movedLocked notes how far the bucket was followed. Called with mu held.
func (s *Service) movedLocked(revision uint64) {
	s.revision = revision
	if s.moved != nil {
		close(s.moved)
		s.moved = nil
	}
}

// sync returns when the book holds everything that was in the bucket at the time of the call, and nothing that had
// expired by then: only a book that is up to date tells that nothing newer has come. The error is a *fault.Error: it
// cannot be known whether it does.
func (s *Service) sync(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	state, err := s.Bus.BucketState(ctx, subject.BucketPresence, began)
	if err != nil {
		return fault.Wrap(fault.Overloaded, unknown, err)
	}
	for {
		s.mu.Lock()
		// A bucket that is empty by now may have been full of what nobody has seen; it has expired since.
		if s.book.epoch == state.Epoch && (s.revision >= state.LastSeq || state.Messages == 0) {
			for _, d := range s.book.expire(began.Add(-s.cfg.TTL)) {
				s.leaveLocked(d)
			}
			s.mu.Unlock()
			return nil
		}
		if s.moved == nil {
			s.moved = make(chan struct{})
		}
		moved := s.moved
		s.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return fault.Wrap(fault.Overloaded, unknown, context.Cause(ctx))
		}
	}
}

// unknown is what clients are told when presence cannot be read or kept.
const unknown = "presence is not known at the moment, try again"

// sweep has the book brought up to date when something in it seems to have expired.
func (s *Service) sweep(ctx context.Context) {
	tick := time.NewTicker(min(s.cfg.TTL/sweepsPerTTL, sweepMost))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.mu.Lock()
			due := s.book.hasExpired(now.Add(-s.cfg.TTL))
			s.mu.Unlock()
			if !due {
				continue
			}
			if err := s.sync(ctx); err != nil && ctx.Err() == nil {
				s.Log.LogAttrs(ctx, slog.LevelWarn, "expired presence not looked at", slog.Any("error", err))
			}
		}
	}
}

// Announce records what accepted announcements say. It returns when that is done, or has failed: an announcement was
// delivered by then, and presence is no reason to say otherwise.
func (s *Service) Announce(ctx context.Context, announcements []*policy.Candidate) {
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	writes := make([]write, 0, len(announcements))
	for _, c := range announcements {
		status := statusOf(c.Event.Content)
		if status == "" || c.Gateway == "" {
			continue
		}
		k := userKey{community: c.Community, pubkey: c.Event.PubKey}
		s.mu.Lock()
		_, last := s.book.status(k)
		s.mu.Unlock()
		writes = append(writes, write{key: k, gateway: c.Gateway, record: &busv1.PresenceRecord{
			// Later than what it replaces, whatever the clocks of replicas say.
			Status: status, AnnouncedAt: max(s.Now().UnixMilli(), last+1),
		}})
	}
	if err := s.write(ctx, writes); err != nil {
		s.Log.LogAttrs(ctx, slog.LevelWarn, "presence not recorded", slog.Any("error", err))
	}
}

// Forget deletes the records of a community that nobody uses any more, and returns when that is done.
func (s *Service) Forget(ctx context.Context, community int64) error {
	if err := s.sync(ctx); err != nil {
		return err
	}
	var writes []write
	s.mu.Lock()
	for k, u := range s.book.users {
		if k.community != community {
			continue
		}
		for gateway := range u.sessions {
			writes = append(writes, write{key: k, gateway: gateway})
		}
	}
	s.mu.Unlock()
	return s.write(ctx, writes)
}

// write is a record to be written, or deleted if there is none.
type write struct {
	key     userKey
	gateway string
	record  *busv1.PresenceRecord
	// after is the revision that the record is written after; nil: after whatever there is.
	after *uint64
	// refused is set by write if that was not the last one.
	refused bool
}

// write writes records, in order, and waits for all of them. If none has failed but some were refused, the error is ErrRevision.
func (s *Service) write(ctx context.Context, writes []write) error {
	var refused error
	for len(writes) > 0 {
		some := writes[:min(len(writes), maxInFlight)]
		writes = writes[len(some):]
		futures := make([]*bus.Future, len(some))
		var errs []error
		for i, w := range some {
			f, err := s.begun(ctx, w)
			futures[i], errs = f, append(errs, err)
		}
		for i, f := range futures {
			if f == nil {
				continue
			}
			_, err := f.Wait(ctx)
			if errors.Is(err, bus.ErrRevision) {
				some[i].refused, refused, err = true, err, nil
			}
			errs = append(errs, err)
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("write presence records: %w", err)
		}
	}
	if refused != nil {
		return fmt.Errorf("write presence records: %w", refused)
	}
	return nil
}

func (s *Service) begun(ctx context.Context, w write) (*bus.Future, error) {
	key := subject.PresenceKey(w.key.community, w.key.pubkey, w.gateway)
	if w.record == nil {
		return s.Bus.DeleteKey(ctx, subject.BucketPresence, key)
	}
	value, err := proto.Marshal(w.record)
	if err != nil {
		return nil, err
	}
	if w.after != nil {
		return s.Bus.PutKeyAfter(ctx, subject.BucketPresence, key, value, *w.after)
	}
	return s.Bus.PutKey(ctx, subject.BucketPresence, key, value)
}
