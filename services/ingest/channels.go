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
	// channelsPage is how many channels are archived or signed in a row, and how many events of a deleted channel one
	// transaction removes: it holds the community meanwhile.
	channelsPage = 100
	// deletedGrace is how long the events of a deleted channel stay, read by nobody: as long as they are known, none
	// of them is accepted again.
	deletedGrace = time.Hour
)

// keepChannels, at the start and then regularly, archives channels in which nobody writes any more, signs the state of those that are due, and removes the
// events of those that were deleted. Replicas find the same channels, and one of them acts.
func (s *Service) keepChannels(ctx context.Context, ready func()) error {
	ready()
	work := []struct {
		what string
		do   func(context.Context) (int, error)
	}{
		{"archive quiet ones", func(ctx context.Context) (int, error) {
			return s.store.ArchiveQuiet(ctx, s.now(), channelsPage)
		}},
		{"sign their state", func(ctx context.Context) (int, error) { return s.store.SignChannels(ctx, channelsPage) }},
		{"remove events of deleted ones", func(ctx context.Context) (int, error) {
			n, err := s.store.SweepDeleted(ctx, s.now().Add(-deletedGrace), channelsPage)
			if n > 0 {
				n = channelsPage // it goes from one channel to the next
			}
			return n, err
		}},
	}
	for ctx.Err() == nil {
		for _, w := range work {
			for ctx.Err() == nil {
				within, cancel := context.WithTimeout(ctx, upkeepTimeout)
				found, err := w.do(within)
				cancel()
				if err != nil && ctx.Err() == nil {
					s.log.LogAttrs(ctx, slog.LevelWarn, "channels are not as they should be", slog.String("what", w.what), slog.Any("error", err))
				}
				if err != nil || found < channelsPage {
					break
				}
			}
		}
		if !lifecycle.Pause(ctx, channelsInterval) {
			break
		}
	}
	return nil
}
