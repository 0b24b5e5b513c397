package search

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/search/internal/directory"
	"github.com/apiary-relay/apiary/services/search/internal/index"
	"github.com/apiary-relay/apiary/services/search/internal/store"
)

// Role is the database role that the pool of Deps takes.
const Role = "apiary_search"

// Deps are what search is given.
type Deps struct {
	// DB is a pool that has taken Role. The service does not close it.
	DB *pgxpool.Pool
	// Bus is where the text index learns of new events. A service without it answers searches from what others
	// index. The service does not close it.
	Bus *bus.Bus
	// Log may be nil.
	Log *slog.Logger
	// Meter may be nil.
	Meter metric.Meter
	// Now is the clock that decides what has expired; nil is time.Now.
	Now func() time.Time
}

// Service is the search service. Register it with a gRPC server, and run it for as long as that server.
type Service struct {
	searchv1.UnimplementedSearchServiceServer
	searchv1.UnimplementedDirectoryServiceServer
	searchv1.UnimplementedModerationServiceServer

	cfg       Config
	db        *pgxpool.Pool
	log       *slog.Logger
	now       func() time.Time
	store     *store.Store
	directory *directory.Directory
	// places are for queries and counts, questions for access, which live delivery waits for, hosts for
	// communities of hosts, which anybody can make up.
	places, questions, hosts *semaphore.Weighted
	metrics                  *metrics
	index                    *index.Index // nil without a bus
}

// New makes the service. It opens nothing: the pool connects when the first request comes.
func New(cfg Config, deps Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure search: %w", err)
	}
	if deps.DB == nil {
		return nil, errors.New("search needs a database pool")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Meter == nil {
		deps.Meter = noop.NewMeterProvider().Meter("search")
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	m, err := newMetrics(deps.Meter)
	if err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	st := store.New(deps.DB, cfg.AcquireTimeout, cfg.QueryTimeout)
	var ix *index.Index
	if deps.Bus != nil {
		if ix, err = index.New(deps.Bus, st, deps.Log, deps.Meter); err != nil {
			return nil, fmt.Errorf("make metrics: %w", err)
		}
	}
	return &Service{
		cfg: cfg, db: deps.DB, log: deps.Log, now: deps.Now, store: st,
		directory: directory.New(st, cfg.AccessWait),
		places:    semaphore.NewWeighted(cfg.MaxRequests),
		questions: semaphore.NewWeighted(cfg.MaxRequests),
		hosts:     semaphore.NewWeighted(cfg.MaxRequests),
		metrics:   m, index: ix,
	}, nil
}

// Register adds the service to a gRPC server: what the other services ask, and what the operator does.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	searchv1.RegisterSearchServiceServer(r, s)
	searchv1.RegisterDirectoryServiceServer(r, s)
	searchv1.RegisterModerationServiceServer(r, s)
}

// schemaRetry is how often the schema's version is looked at while Postgres is away or behind.
const schemaRetry = 10 * time.Second

// Run is ready at once: requests are answered as soon as Postgres can be reached, with errors before. It
// says in the log when the schema is behind the program, keeps the text index once it is not, and blocks until
// ctx ends.
func (s *Service) Run(ctx context.Context, ready func()) error {
	ready()
	tick := time.NewTicker(schemaRetry)
	defer tick.Stop()
	for said := false; ctx.Err() == nil; {
		err := s.checkSchema(ctx)
		if err == nil {
			break
		}
		if errors.Is(err, postgres.ErrSchemaBehind) && !said {
			said = true
			s.log.LogAttrs(ctx, slog.LevelError, "database schema is behind", slog.Any(telemetry.KeyError, err))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	if s.index != nil && ctx.Err() == nil {
		s.index.Run(ctx)
	}
	<-ctx.Done()
	return nil
}

func (s *Service) checkSchema(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AcquireTimeout+s.cfg.QueryTimeout)
	defer cancel()
	return postgres.CheckSchema(ctx, s.db)
}

// Drain refuses new requests and waits for those in hand, by ctx's deadline.
func (s *Service) Drain(ctx context.Context) error {
	for _, places := range []*semaphore.Weighted{s.places, s.questions, s.hosts} {
		// Who holds all places leaves none, and a waiting Acquire lets nobody pass.
		if err := places.Acquire(ctx, s.cfg.MaxRequests); err != nil {
			return fmt.Errorf("wait for requests in hand: %w", err)
		}
	}
	return nil
}

// admit takes a place for a request and begins its measurement. end gives the place back; it is given the
// request's error.
func (s *Service) admit(ctx context.Context, call string) (end func(error), err error) {
	begun := time.Now()
	places := s.places
	switch call {
	case callAccess:
		places = s.questions
	case callResolve:
		places = s.hosts
	}
	if !places.TryAcquire(1) {
		err := fault.New(fault.Overloaded, "")
		s.metrics.request(ctx, call, err, time.Since(begun))
		return nil, err
	}
	return func(err error) {
		places.Release(1)
		s.metrics.request(ctx, call, err, time.Since(begun))
	}, nil
}
