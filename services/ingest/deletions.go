package ingest

import (
	"context"
	"log/slog"
	"time"

	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/tenant"
)

const (
	// deletionsInterval is how often communities to be deleted are looked for, in case that the replica which had one in hand
	// is gone.
	deletionsInterval = 5 * time.Second
	// drainTimeout bounds one step. drainLease is for how long a replica has a community for itself after the beginning of
	// each: more than a step may take, so that only who was killed, or is cut off, loses it.
	drainTimeout = 10 * time.Second
	drainLease   = drainTimeout + 5*time.Second
	// drainPage is how many rows one step removes.
	drainPage = 1000
)

// drainLater makes drainDeleted run as soon as it can.
func (s *Service) drainLater() {
	select {
	case s.doomed <- struct{}{}:
	default:
	}
}

// drainDeleted removes the rows of communities that are to be deleted: at the start, when one was asked for here, and
// regularly. Each community is in the hand of one replica at a time. It rests for as long as each step took, since nobody
// waits for it.
func (s *Service) drainDeleted(ctx context.Context, ready func()) error {
	ready()
	for ctx.Err() == nil {
		began := time.Now()
		more, err := s.drainStep(ctx)
		next := deletionsInterval
		switch {
		case err != nil && ctx.Err() == nil:
			s.log.LogAttrs(ctx, slog.LevelWarn, "deleted community not drained", slog.Any("error", err))
		case more:
			if !lifecycle.Pause(ctx, time.Since(began)) {
				return nil
			}
			continue
		}
		timer := time.NewTimer(next)
		select {
		case <-s.doomed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// drainStep does one step, and reports whether there was anything to do. A community is done when nothing of it is left,
// who was there included.
func (s *Service) drainStep(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	step, err := s.store.DrainCommunity(ctx, s.name, drainLease, drainPage)
	if err != nil || step.RequestID == "" {
		return false, err
	}
	ctx = tenant.With(ctx, tenant.ID(step.Community))
	s.metrics.drained.Add(ctx, int64(step.Removed))
	if !step.Empty {
		return true, nil
	}
	if err := s.presence.Forget(ctx, step.Community); err != nil {
		return false, err
	}
	finished, err := s.store.FinishDeletion(ctx, step.RequestID, s.name)
	if finished {
		s.log.LogAttrs(ctx, slog.LevelInfo, "community deleted", slog.String("request", step.RequestID))
	}
	return err == nil, err
}
