package presence

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/bus/subject"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

const (
	// maxLeft bounds the departures that wait to be told. What is beyond is left out: clients that ask see it.
	maxLeft = 1 << 16
	// leftPage is how many departures are told on one reading of access versions.
	leftPage = 256
	// tellTimeout bounds one page, tellPause is the wait before one that failed is tried again.
	tellTimeout = 10 * time.Second
	tellPause   = time.Second
)

// leaveLocked has a departure told. Called with mu held.
func (s *Service) leaveLocked(d departure) {
	if s.Key == nil || len(s.left) >= maxLeft {
		return
	}
	s.left = append(s.left, d)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// tell publishes departures until ctx ends.
func (s *Service) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		for page := s.page(); len(page) > 0; page = s.page() {
			if err := s.publish(ctx, page); err != nil {
				if ctx.Err() != nil {
					return
				}
				s.Log.LogAttrs(ctx, slog.LevelWarn, "departures not told yet", slog.Int("keys", len(page)), slog.Any("error", err))
				timer := time.NewTimer(tellPause)
				select {
				case <-ctx.Done():
				case <-timer.C:
				}
				timer.Stop()
				continue
			}
			s.mu.Lock()
			s.left = s.left[len(page):]
			s.mu.Unlock()
		}
	}
}

// page returns the departures that are told next.
func (s *Service) page() []departure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.left) == 0 {
		s.left = nil // lets go of what it has grown to
	}
	return s.left[:min(len(s.left), leftPage)]
}

// leftAt returns when somebody left, for the event that says so. Whoever leaves twice in a second has left again in the
// next one: otherwise the two were one event, and who listens would not get the second. Only the tell goroutine calls it.
func (s *Service) leftAt(k userKey) int64 {
	at := s.Now().Unix()
	if last, again := s.told[k]; again {
		at = max(at, last+1)
	}
	s.told[k] = at
	return at
}

// prune drops what leftAt need not know any more, and everything if that is too much.
func (s *Service) prune() {
	now := s.Now().Unix()
	maps.DeleteFunc(s.told, func(_ userKey, at int64) bool { return at < now })
	if len(s.told) >= maxLeft {
		clear(s.told)
	}
}

// publish publishes departures. Repeating it is harmless: the stream knows the message ids.
func (s *Service) publish(ctx context.Context, page []departure) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	s.prune()
	candidates := make([]*policy.Candidate, 0, len(page))
	gone := make([]departure, 0, len(page))
	for _, d := range page {
		s.mu.Lock()
		status, _ := s.book.status(d.userKey)
		s.mu.Unlock()
		if isOnline(status) {
			continue // and has come back meanwhile
		}
		ev, err := s.sign(d.userKey, offline, s.leftAt(d.userKey))
		if err != nil {
			return err
		}
		c := &policy.Candidate{Event: ev}
		c.Community, c.Raw = d.community, ev.AppendJSON(nil)
		candidates, gone = append(candidates, c), append(gone, d)
	}
	if len(gone) == 0 {
		return nil
	}
	state, err := s.Store.ReadState(ctx, candidates)
	if err != nil {
		return err
	}
	for i, c := range candidates {
		community, ok := state.Communities[c.Community]
		if !ok || community.Archived {
			continue // nobody is left who could hear of it
		}
		h := store.NewHeader(c, s.cfg.Partitions)
		h.CommunityAclVersion, h.JudgedAt = community.ACLVersion, state.ReadAt
		h.Subject = gone[i].pubkey[:]
		payload, err := proto.Marshal(&busv1.EnvelopeBatch{Envelopes: []*commonv1.Envelope{{Header: h, Raw: c.Raw}}})
		if err != nil {
			return fmt.Errorf("encode departure: %w", err)
		}
		id := fmt.Sprintf("presence.%d.%d", gone[i].epoch, gone[i].revision)
		if _, err := s.Bus.Publish(ctx, subject.Ephemeral(h.GetPartition()), id, payload); err != nil {
			return err
		}
	}
	return nil
}
