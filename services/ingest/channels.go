package ingest

import (
	"context"
	"log/slog"
	"time"

	"github.com/apiary-relay/apiary/pkg/lifecycle"
)

const (
	// channelsInterval is how often channels are looked at. One whose time is over is archived that much later.
	channelsInterval = 10 * time.Second
	// rostersInterval is how often long lists of members are looked for that are to be signed.
	rostersInterval = time.Second
	// channelsPage is how many channels are archived or signed in a row, and how many events of a deleted channel one
	// transaction removes: it holds the community meanwhile.
	channelsPage = 100
	// deletedGrace is how long the events of a deleted channel stay, read by nobody: as long as they are known, none
	// of them is accepted again.
	deletedGrace = time.Hour
)

// chore is a piece of upkeep that is done page by page. do returns how much it found; less than a page is the end.
type chore struct {
	what string
	page int
	do   func(context.Context) (int, error)
}

// keepChannels, at the start and then regularly, archives channels in which nobody writes any more, signs the state of those
// that have none, and removes the events of those that were deleted. Replicas find the same channels, and one of them acts.
func (s *Service) keepChannels(ctx context.Context, ready func()) error {
	return s.keep(ctx, ready, channelsInterval, []chore{
		{"archive quiet channels", channelsPage, func(ctx context.Context) (int, error) {
			return s.byDatabase(ctx, func(now time.Time) (int, error) { return s.store.ArchiveQuiet(ctx, now, channelsPage) })
		}},
		{"sign channels", channelsPage, func(ctx context.Context) (int, error) { return s.store.SignChannels(ctx, channelsPage) }},
		{"remove events of deleted channels", channelsPage, func(ctx context.Context) (int, error) {
			n, err := s.byDatabase(ctx, func(now time.Time) (int, error) {
				return s.store.SweepDeleted(ctx, now.Add(-deletedGrace), channelsPage)
			})
			if n > 0 {
				n = channelsPage // it goes from one channel to the next
			}
			return n, err
		}},
	})
}

// keepRosters signs long lists of members whose time has come. Replicas find the same lists, and one of them signs.
func (s *Service) keepRosters(ctx context.Context, ready func()) error {
	return s.keep(ctx, ready, rostersInterval, []chore{
		{"sign members of channels", channelsPage, func(ctx context.Context) (int, error) { return s.store.SignMembers(ctx, channelsPage) }},
		{"sign members of communities", channelsPage, func(ctx context.Context) (int, error) { return s.store.SignRosters(ctx, channelsPage) }},
	})
}

// keep does chores now and after each interval, until ctx is done.
func (s *Service) keep(ctx context.Context, ready func(), interval time.Duration, chores []chore) error {
	ready()
	for ctx.Err() == nil {
		for _, c := range chores {
			for ctx.Err() == nil {
				within, cancel := context.WithTimeout(ctx, upkeepTimeout)
				found, err := c.do(within)
				cancel()
				if err != nil && ctx.Err() == nil {
					s.faults.LogAttrs(ctx, slog.LevelWarn, "upkeep failed", slog.String("what", c.what), slog.Any("error", err))
				}
				if err != nil || found < c.page {
					break
				}
			}
		}
		if !lifecycle.Pause(ctx, interval) {
			break
		}
	}
	return nil
}
