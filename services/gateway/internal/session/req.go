package session

import (
	"context"
	"slices"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
	"github.com/apiary-relay/apiary/services/gateway/internal/hub"
)

// topic is what a subscription listens on, with the filters that concern it.
type topic struct {
	channel string // empty: the global topic
	filters []*commonv1.Filter
}

// query is what a REQ or COUNT asks for, once its filters have been judged.
type query struct {
	filters []*commonv1.Filter // those that can match something
	topics  []topic            // in order of appearance
	stored  bool               // some filter wants stored events
	dropped bool               // some filter can match nothing and is not among filters
}

// plan judges filters and derives the topics. A filter with a search (NIP-50) is for stored events only, so
// it listens nowhere. An error is a *fault.Error.
func (srv *Server) plan(filters []nostr.Filter) (query, error) {
	var q query
	channels := 0
	for i := range filters {
		f := &filters[i]
		values, scoped := f.Tag('h')
		channels += len(values)
		if channels > srv.cfg.MaxChannels {
			return q, fault.New(fault.Invalid, "too many channels in one request")
		}
		if !allChannels(values) {
			return q, fault.New(fault.Invalid, "a value of #h is not a channel id")
		}
		if f.MatchesNothing {
			q.dropped = true
			continue
		}
		pb := nostrpb.FilterToProto(f)
		limit := uint32(srv.cfg.Limit) // stated also when the client did not: NIP-11 promises this value
		if pb.Limit != nil {
			limit = min(limit, pb.GetLimit())
		}
		pb.Limit = &limit
		q.filters = append(q.filters, pb)
		q.stored = q.stored || limit > 0
		switch {
		case f.Search != "":
		case !scoped:
			q.listen("", pb)
		default:
			for _, h := range values {
				q.listen(h, pb)
			}
		}
	}
	return q, nil
}

// listen adds a filter to a topic, once.
func (q *query) listen(channel string, f *commonv1.Filter) {
	i := slices.IndexFunc(q.topics, func(t topic) bool { return t.channel == channel })
	if i < 0 {
		q.topics = append(q.topics, topic{channel: channel, filters: []*commonv1.Filter{f}})
		return
	}
	t := &q.topics[i]
	if t.filters[len(t.filters)-1] != f { // a value given twice
		t.filters = append(t.filters, f)
	}
}

// maxChannelID is the longest channel id.
const maxChannelID = 64

func allChannels(values []string) bool {
	return !slices.ContainsFunc(values, func(h string) bool { return !isChannel(h) })
}

// isChannel reports whether h can be a channel id: 1 to 64 of [A-Za-z0-9_-].
func isChannel(h string) bool {
	if h == "" || len(h) > maxChannelID {
		return false
	}
	for i := range len(h) {
		c := h[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// req opens a subscription, replacing one with the same id.
func (s *Session) req(f *wire.Frame, start time.Time) {
	p := s.Principal()
	if p == nil {
		s.closed(f.SubID, fault.FrameText(fault.AuthRequired, notAuthenticated))
		return
	}
	q, err := s.srv.plan(f.Filters)
	if err != nil {
		s.refuse(f.SubID, fault.Frame(err))
		return
	}
	if len(q.filters) == 0 {
		// Nothing can match, now or later: there is nothing to keep open.
		s.close(f.SubID)
		s.conn.Control(cork.Build(len(f.SubID)+16, func(b []byte) []byte { return wire.AppendEOSE(b, f.SubID) }))
		return
	}
	sub := newSubscription(s, f.SubID, q.topics)
	if !s.open(sub) {
		s.closed(f.SubID, fault.FrameText(fault.Overloaded, "too many subscriptions"))
		return
	}
	s.jobs.add(s.ctx, func() {
		if text := s.run(sub, q, p); text != "" {
			sub.fail(text)
		}
		s.srv.Metrics.Req(s.ctx, time.Since(start).Seconds())
	})
}

// refuse answers a REQ that is not accepted: a subscription with its id ends too, because for the client
// it has been replaced.
func (s *Session) refuse(subID, text string) {
	s.close(subID)
	s.closed(subID, text)
}

// open enters sub into the books; what it replaces is closed first, so that its frames cannot follow.
func (s *Session) open(sub *subscription) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.subs[sub.id]
	if old == nil && s.srv.cfg.MaxSubs > 0 && len(s.subs) >= s.srv.cfg.MaxSubs {
		return false
	}
	if old != nil {
		old.end()
	}
	s.subs[sub.id] = sub
	s.srv.Metrics.Subscribed(s.ctx, 1)
	return true
}

// close ends a subscription at the client's wish; nothing is answered.
func (s *Session) close(subID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := s.subs[subID]; sub != nil {
		delete(s.subs, subID)
		sub.end()
	}
}

func (s *Session) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subs {
		sub.end()
	}
	clear(s.subs)
}

// errEnded is the cause of a context whose subscription has ended.
var errEnded = fault.New(fault.Cancelled, "")

// run takes a subscription from opening to live. It returns the text to close it with, empty when it is
// live or has ended by itself.
func (s *Session) run(sub *subscription, q query, p *commonv1.Principal) string {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	if !sub.begin(func() { cancel(errEnded) }) {
		return ""
	}
	defer sub.begin(nil)

	// Live first, then history: whatever commits in between is held, and the snapshot tells what the
	// history has had already.
	sub.attach(p)
	if err := s.awaitAttached(ctx, sub); err != nil {
		return fault.Frame(err)
	}
	if !sub.startReading() {
		return ""
	}
	if q.stored {
		if err := s.history(ctx, sub, q, p); err != nil {
			return fault.Frame(err)
		}
	}
	if !sub.eose() {
		return ""
	}
	for held, more := sub.release(); more; held, more = sub.release() {
		for _, ev := range held {
			if err := s.conn.HistoryRoom(ctx); err != nil {
				return ""
			}
			if !sub.send(ev.Fresh(sub.prefix)) {
				return ""
			}
		}
	}
	return ""
}

func (s *Session) awaitAttached(ctx context.Context, sub *subscription) error {
	timer := time.NewTimer(s.srv.cfg.AttachTimeout)
	defer timer.Stop()
	select {
	case <-sub.ready:
		return nil
	case <-timer.C:
		return fault.New(fault.Overloaded, "")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// history sends the stored events. The client's pace holds the query back, within the bounds.
func (s *Session) history(ctx context.Context, sub *subscription, q query, p *commonv1.Principal) error {
	return s.srv.stored(ctx, s.community.ID, q, p, sub.setSnapshot, func(ctx context.Context, raw []byte) error {
		if err := s.conn.HistoryRoom(ctx); err != nil {
			return callError(ctx, err)
		}
		if !sub.send(hub.Stored(sub.prefix, raw)) {
			return errEnded
		}
		return nil
	})
}

// count answers a COUNT (NIP-45).
func (s *Session) count(f *wire.Frame, start time.Time) {
	p := s.Principal()
	if p == nil {
		s.closed(f.SubID, fault.FrameText(fault.AuthRequired, notAuthenticated))
		return
	}
	q, err := s.srv.plan(f.Filters)
	if err != nil {
		s.closed(f.SubID, fault.Frame(err))
		return
	}
	if len(q.filters) == 0 {
		s.counted(f.SubID, 0, nil)
		return
	}
	s.mu.Lock()
	full := s.counts >= s.srv.cfg.MaxCounts
	if !full {
		s.counts++
	}
	s.mu.Unlock()
	if full {
		s.closed(f.SubID, fault.FrameText(fault.RateLimited, "too many counts at a time"))
		return
	}
	id := f.SubID
	s.jobs.add(s.ctx, func() {
		n, hll, err := s.srv.count(s.ctx, s.community.ID, q, p)
		if err != nil {
			if text := fault.Frame(err); text != "" {
				s.closed(id, text)
			}
		} else {
			s.counted(id, n, hll)
		}
		s.mu.Lock()
		s.counts--
		s.mu.Unlock()
		s.srv.Metrics.Count(s.ctx, time.Since(start).Seconds())
	})
}

func (s *Session) counted(subID string, n uint64, hll []byte) {
	s.conn.Control(cork.Build(len(subID)+2*len(hll)+48, func(b []byte) []byte {
		return wire.AppendCountHLL(b, subID, n, hll)
	}))
}
