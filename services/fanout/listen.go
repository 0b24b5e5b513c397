package fanout

import (
	"context"
	"log/slog"
	"time"

	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/telemetry"
)

const (
	// pulse is the pause between two questions whether the bus is there.
	pulse = 200 * time.Millisecond
	// pulseAgain is the same after a question that failed at once.
	pulseAgain = 50 * time.Millisecond
)

// listen asks the bus again and again whether it is there, and tells gateways each time, until ctx ends. A connection
// that is dead in silence would otherwise be found out after minutes, and one that was reset may take as long to come back;
// other nodes may have theirs. A node of which gateways do not hear that, because it is frozen or cut off from them, they
// leave.
func (s *Service) listen(ctx context.Context) {
	for heard := time.Now(); ctx.Err() == nil; {
		asking, cancel := context.WithTimeout(ctx, s.cfg.BusSilence)
		err := s.bus.Ping(asking)
		cancel()
		next := pulse
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			heard = time.Now()
			if s.links.bus(false) {
				s.log.LogAttrs(ctx, slog.LevelInfo, "the bus is back")
			}
		case time.Since(heard) >= s.cfg.BusSilence:
			if s.links.bus(true) {
				s.log.LogAttrs(ctx, slog.LevelWarn, "the bus is away: gateways may go elsewhere", slog.Any(telemetry.KeyError, err))
			}
			next = pulseAgain
		default:
			next = pulseAgain
		}
		if !lifecycle.Pause(ctx, next) {
			return
		}
	}
}
