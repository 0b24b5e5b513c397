package session

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/apiary-relay/apiary/pkg/fault"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/hub"
)

// slotPatience is how long one query may wait for its client, in all, while it holds one of the process's
// queries and there is no memory left for what the client does not take.
const slotPatience = time.Second

// A session may use one part in parkingShare of the memory for what clients have not taken yet.
const parkingShare = 8

// parking is memory for stored events that search has answered with and clients have not taken yet.
type parking struct {
	bytes *semaphore.Weighted
	share int64 // of one session
}

func newParking(bytes int64) parking {
	return parking{bytes: semaphore.NewWeighted(bytes), share: max(bytes/parkingShare, 1)}
}

// history sends the stored events of a subscription in order. Search is asked at its own pace and not at the
// client's: what the client does not take at once is parked, so that a slow one gives the query back, which
// others wait for, as soon as search has answered. A client that has enough to read asks nothing yet.
type history struct {
	s        *Session
	sub      *subscription
	parked   [][]byte      // in order, before anything that comes later
	patience time.Duration // what is left of slotPatience
}

// history runs the stored query of q and sends what it brings.
func (s *Session) history(ctx context.Context, sub *subscription, q query, p *commonv1.Principal) error {
	ctx, cancel := context.WithTimeout(ctx, s.srv.cfg.QueryTimeout)
	defer cancel()
	if err := s.conn.HistoryRoom(ctx); err != nil {
		return err
	}
	h := &history{s: s, sub: sub, patience: slotPatience}
	defer h.leave()
	err := s.inTurn(ctx, func() error {
		who := s.asker(p)
		if err := s.srv.presence(ctx, who, s.community.ID, q, p, h.add); err != nil || !q.stored {
			return err
		}
		return s.srv.stored(ctx, who, s.community.ID, q, p, func(first *searchv1.QueryResponse) { sub.setSnapshot(first.GetSnapshot()) }, h.add)
	})
	if err != nil {
		return callError(ctx, err)
	}
	for len(h.parked) > 0 {
		if err := s.conn.HistoryRoom(ctx); err != nil {
			return err
		}
		if err := h.sendParked(); err != nil {
			return err
		}
	}
	return nil
}

// inTurn asks search something when the connection's other questions leave room for it: what one client asks
// may be hard to answer, and must leave most of search to the others.
func (s *Session) inTurn(ctx context.Context, ask func() error) error {
	if err := s.queries.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer s.queries.Release(1)
	return ask()
}

// add sends or parks one event.
func (h *history) add(ctx context.Context, raw []byte) error {
	for {
		switch room := h.s.conn.HasHistoryRoom(); {
		case room && len(h.parked) > 0:
			if err := h.sendParked(); err != nil {
				return err
			}
		case room:
			return h.send(raw)
		case h.park(raw):
			return nil
		default:
			if err := h.awaitRoom(ctx); err != nil {
				return err
			}
		}
	}
}

// awaitRoom waits for the client while others may be waiting for the query.
func (h *history) awaitRoom(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, h.patience, fault.New(fault.Overloaded, "too slow for so many stored events"))
	defer cancel()
	err := h.s.conn.HistoryRoom(ctx)
	h.patience -= time.Since(began)
	return err
}

func (h *history) send(raw []byte) error {
	if !h.sub.send(hub.Stored(h.sub.prefix, raw)) {
		return errEnded
	}
	return nil
}

// park keeps an event until the client has room. It reports false when there is no memory for it.
func (h *history) park(raw []byte) bool {
	n, p := int64(len(raw)), &h.s.srv.parking
	if h.s.parked.Add(n) > p.share || !p.bytes.TryAcquire(n) {
		h.s.parked.Add(-n)
		return false
	}
	h.parked = append(h.parked, raw)
	return true
}

func (h *history) sendParked() error {
	raw := h.parked[0]
	h.parked[0] = nil
	h.parked = h.parked[1:]
	h.unpark(raw)
	return h.send(raw)
}

func (h *history) unpark(raw []byte) {
	n := int64(len(raw))
	h.s.parked.Add(-n)
	h.s.srv.parking.bytes.Release(n)
}

// leave gives back what is still parked.
func (h *history) leave() {
	for _, raw := range h.parked {
		h.unpark(raw)
	}
	h.parked = nil
}
