package ingest

import (
	"context"
	"log/slog"
	"time"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
)

const (
	// upkeepTimeout bounds one piece of upkeep.
	upkeepTimeout = 30 * time.Second
	// partitionsInterval is how often missing table partitions are looked for.
	partitionsInterval = 24 * time.Hour
	// settingsInterval is how often the database server's settings are looked at: it may be another server.
	settingsInterval = time.Hour
	// streamsInterval is how often the definition of the streams is looked at while nothing happens.
	streamsInterval = 30 * time.Second
	// streamsRetry is when they are looked at after a failure. Until they are there nothing is live, and a NATS cluster that
	// has just started says nothing for some seconds.
	streamsRetry = time.Second
	// retryInterval is when upkeep that failed is tried again.
	retryInterval = 5 * time.Second
	// expiredPage is how many expired events of a community one transaction removes: it holds the
	// community meanwhile.
	expiredPage = 200
	// vanishedInterval is how often everybody who asked to vanish is looked at, in case that a replica stopped
	// before it had removed everything.
	vanishedInterval = 10 * time.Minute
	// vanishedKeys is how many of them are finished in a row.
	vanishedKeys = 16
	// outdatedInterval is how often HTTP tokens, commands and invites are forgotten, outdatedPage how many at once.
	outdatedInterval = time.Minute
	outdatedPage     = 1000
	// outdatedGrace is how much longer than needed they are remembered, for processes whose clocks are late.
	outdatedGrace = 5 * time.Minute
	// moderationInterval is how often old entries of the log of moderation are looked for, of every community.
	moderationInterval = time.Hour
	// remindInterval is how often due reminders are looked for, remindPage how many at once: a reminder comes that much
	// later than its time.
	remindInterval = time.Second
	remindPage     = 100
	// attestationsInterval is how often attestations that have ended are looked for: what is delivered live stops that much later
	// than they end. attestationsPage is in how many communities, and how many in each, one look ends.
	attestationsInterval = time.Second
	attestationsPage     = 1000
)

// byDatabase does what depends on the time by the database's clock. All replicas have that one in common: by its own, a replica
// whose clock is wrong would remind too early, or remove what has not expired, and nothing brings that back.
func (s *Service) byDatabase(ctx context.Context, do func(now time.Time) (int, error)) (int, error) {
	now, err := s.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	return do(now)
}

// keepPartitions makes the monthly partitions at the start and then daily. The month before is included, for
// events that were signed just before midnight.
func (s *Service) keepPartitions(ctx context.Context, ready func()) error {
	ready()
	for {
		next := partitionsInterval
		within, cancel := context.WithTimeout(ctx, upkeepTimeout)
		year, month, _ := s.now().UTC().Date()
		from := time.Date(year, month-1, 1, 0, 0, 0, 0, time.UTC)
		made, err := s.store.EnsurePartitions(within, from, s.cfg.PartitionMonths+1)
		cancel()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			next = retryInterval
			s.log.LogAttrs(ctx, slog.LevelWarn, "event partitions not ensured", slog.Any("error", err))
		case made > 0:
			s.log.LogAttrs(ctx, slog.LevelInfo, "event partitions made", slog.Int("tables", made))
		}
		if !lifecycle.Pause(ctx, next) {
			return nil
		}
	}
}

// watchSettings says, at the start and now and then, that the database server may lose what was acknowledged. It is
// not refused: throw-away servers of tests are like that, and on others it may be meant.
func (s *Service) watchSettings(ctx context.Context, ready func()) error {
	ready()
	for {
		next := settingsInterval
		within, cancel := context.WithTimeout(ctx, upkeepTimeout)
		unsafe, err := s.store.UnsafeSettings(within)
		cancel()
		switch {
		case err != nil:
			next = retryInterval // that Postgres is away is said by others
		case len(unsafe) > 0:
			s.log.LogAttrs(ctx, slog.LevelWarn, "a crash of the database server's machine may lose acknowledged events and damage the database",
				slog.Any("settings_off", unsafe))
		}
		if !lifecycle.Pause(ctx, next) {
			return nil
		}
	}
}

// sweepExpired removes events that have expired (NIP-40).
func (s *Service) sweepExpired(ctx context.Context, ready func()) error {
	ready()
	if s.cfg.ExpiryInterval == 0 {
		<-ctx.Done()
		return nil
	}
	for lifecycle.Pause(ctx, s.cfg.ExpiryInterval) {
		for ctx.Err() == nil {
			within, cancel := context.WithTimeout(ctx, upkeepTimeout)
			removed, err := s.byDatabase(within, func(now time.Time) (int, error) { return s.store.SweepExpired(within, now, expiredPage) })
			cancel()
			s.metrics.expired.Add(ctx, int64(removed))
			if err != nil && ctx.Err() == nil {
				s.log.LogAttrs(ctx, slog.LevelWarn, "expired events not removed", slog.Any("error", err))
			}
			if err != nil || removed == 0 {
				break
			}
		}
	}
	return nil
}

// remind passes on reminders whose time has come (NIP-ER), at the start also those whose time came while nobody was there.
// Replicas find the same ones, and one of them passes each on.
func (s *Service) remind(ctx context.Context, ready func()) error {
	return s.keep(ctx, ready, remindInterval, []chore{{"pass on reminders", remindPage, func(ctx context.Context) (int, error) {
		return s.byDatabase(ctx, func(now time.Time) (int, error) {
			passed, found, err := s.store.Remind(ctx, now, remindPage)
			s.metrics.reminders.Add(ctx, int64(passed))
			return found, err
		})
	}}})
}

// endAttestations takes from agents what an attestation gave that has ended (NIP-OA), at the start also those that ended while
// nobody was there. Replicas find the same ones, and one of them ends each.
func (s *Service) endAttestations(ctx context.Context, ready func()) error {
	return s.keep(ctx, ready, attestationsInterval, []chore{{"end attestations", attestationsPage, func(ctx context.Context) (int, error) {
		return s.store.EndAttestations(ctx, attestationsPage)
	}}})
}

// vanishLater makes sweepVanished run as soon as it can.
func (s *Service) vanishLater() {
	select {
	case s.left <- struct{}{}:
	default:
	}
}

// sweepVanished removes what requests to vanish have left (NIP-62), at the start, when one has left something, and
// now and then.
func (s *Service) sweepVanished(ctx context.Context, ready func()) error {
	ready()
	for ctx.Err() == nil {
		next := vanishedInterval
		within, cancel := context.WithTimeout(ctx, upkeepTimeout)
		removed, err := s.store.SweepVanished(within, vanishedKeys)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			next = retryInterval
			s.log.LogAttrs(ctx, slog.LevelWarn, "events of vanished keys not removed", slog.Any("error", err))
		case removed > 0:
			continue
		}
		timer := time.NewTimer(next)
		select {
		case <-s.left:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// sweepOutdated forgets what is too old to matter: HTTP tokens that would not be accepted anyway (NIP-98), likewise
// commands, invites, and bans and timeouts that have ended.
func (s *Service) sweepOutdated(ctx context.Context, ready func()) error {
	ready()
	for lifecycle.Pause(ctx, outdatedInterval) {
		for what, forget := range map[string]func(context.Context, time.Time, int) (int, error){
			"tokens": s.store.ExpireTokens, "tokens of operators": s.store.ExpireOperatorTokens, "commands": s.store.ForgetCommands, "invites": s.store.ForgetInvites,
			"channel invites": s.store.ForgetChannelInvites, "timeouts": s.store.ForgetTimeouts,
			"bans": func(ctx context.Context, _ time.Time, limit int) (int, error) { return s.store.EndBans(ctx, limit) },
		} {
			for ctx.Err() == nil {
				within, cancel := context.WithTimeout(ctx, upkeepTimeout)
				removed, err := s.byDatabase(within, func(now time.Time) (int, error) {
					return forget(within, now.Add(-outdatedGrace), outdatedPage)
				})
				cancel()
				if err != nil && ctx.Err() == nil {
					s.log.LogAttrs(ctx, slog.LevelWarn, "outdated rows not forgotten", slog.String("what", what), slog.Any("error", err))
				}
				if err != nil || removed < outdatedPage {
					break
				}
			}
		}
	}
	return nil
}

// forgetModeration removes old entries of the log of moderation.
func (s *Service) forgetModeration(ctx context.Context, ready func()) error {
	var chores []chore
	if s.cfg.ModerationKept > 0 {
		chores = []chore{{"forget moderation", outdatedPage, func(ctx context.Context) (int, error) {
			return s.byDatabase(ctx, func(now time.Time) (int, error) {
				return s.store.ForgetActions(ctx, now.Add(-s.cfg.ModerationKept), outdatedPage)
			})
		}}}
	}
	return s.keep(ctx, ready, moderationInterval, chores)
}

// ensureStreams defines the streams as soon as NATS can be reached, and again whenever it comes back, since it may
// have lost what it had, and now and then, since somebody may have removed them.
func (s *Service) ensureStreams(ctx context.Context, ready func(), b *bus.Bus) error {
	ready()
	for ctx.Err() == nil {
		changed, next := b.Changed(), streamsInterval
		if b.Connected() {
			within, cancel := context.WithTimeout(ctx, upkeepTimeout)
			err := b.EnsureStreams(within, bus.StreamOptions{
				Replicas: s.cfg.StreamReplicas, Partitions: s.cfg.Partitions,
				EventsMaxBytes: s.cfg.EventsMaxBytes, EphemeralMaxBytes: s.cfg.EphemeralMaxBytes,
			})
			if err == nil {
				err = b.EnsureBucket(within, bus.BucketOptions{
					Name: subject.BucketPresence, Description: "Who is online: one key for each gateway and public key.",
					TTL: s.cfg.PresenceTTL, MaxBytes: s.cfg.PresenceMaxBytes, Replicas: s.cfg.StreamReplicas,
				})
			}
			cancel()
			if err != nil && ctx.Err() == nil {
				next = streamsRetry
				s.log.LogAttrs(ctx, slog.LevelWarn, "streams not ensured", slog.Any("error", err))
			}
		}
		timer := time.NewTimer(next)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}
