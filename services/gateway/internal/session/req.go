package session

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
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
	invites []*commonv1.Filter // those that ask for an invite
	// presences and present are who it asks about, by filter and altogether; the filters are not among filters.
	presences []presences
	present   [][]byte
	paging    []*searchv1.Paging // of filters; empty for the first page of each
	dropped   bool               // some filter can match nothing and is not among filters
}

const (
	// maxValues is how many values the filters of one request may hold, by search's contract.
	maxValues = 10_000
	// topicCost is what a topic costs besides the values of the filters there: about as much memory as so many
	// of them take, here and in fan-out.
	topicCost = 16
)

// cost is what a subscription is charged for, in values of filters: those that it listens with, once for
// each topic.
func (q *query) cost() int64 {
	n := 0
	for _, t := range q.topics {
		n += topicCost
		for _, f := range t.filters {
			n += countValues(f)
		}
	}
	return int64(n)
}

func countValues(f *commonv1.Filter) int {
	n := len(f.GetIds()) + len(f.GetAuthors()) + len(f.GetKinds())
	for _, t := range f.GetTags() {
		n += len(t.GetValues())
	}
	return n
}

// plan judges filters and derives the topics. A filter with a search (NIP-50) is for stored events only, so
// it listens nowhere; its answer has an order of its own, so the others of the request have a search as well. An error is a
// *fault.Error.
func (srv *Server) plan(filters []nostr.Filter) (query, error) {
	var q query
	if slices.ContainsFunc(filters, isSearch) && slices.ContainsFunc(filters, func(f nostr.Filter) bool { return !isSearch(f) }) {
		return q, fault.New(fault.Invalid, "mixed search and non-search filters not supported")
	}
	channels, total := 0, 0
	for i := range filters {
		f := &filters[i]
		values, scoped := f.Tag('h')
		channels += len(values)
		if channels > srv.cfg.MaxChannels {
			return q, fault.New(fault.Invalid, "too many explicit channels")
		}
		if slices.ContainsFunc(values, func(h string) bool { return !nostr.ValidChannelID(h) }) {
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
		if total += countValues(pb); total > maxValues {
			return q, fault.New(fault.Invalid, fmt.Sprintf("filters hold more than %d values", maxValues))
		}
		pb.Limit = &limit
		if asksInvite(f) {
			q.invites = append(q.invites, pb)
		}
		if asksPresence(f) {
			if err := q.askPresence(f, limit); err != nil {
				return q, err
			}
			q.listen("", pb)
			continue
		}
		q.filters = append(q.filters, pb)
		q.stored = q.stored || limit > 0
		switch {
		case f.Search != "":
		case !scoped:
			q.listen("", pb)
		default:
			for i, h := range values {
				if !slices.Contains(values[:i], h) {
					q.listen(h, inChannel(pb, h))
				}
			}
		}
	}
	return q, nil
}

func isSearch(f nostr.Filter) bool { return f.Search != "" }

// listen adds a filter to a topic.
func (q *query) listen(channel string, f *commonv1.Filter) {
	i := slices.IndexFunc(q.topics, func(t topic) bool { return t.channel == channel })
	if i < 0 {
		i = len(q.topics)
		q.topics = append(q.topics, topic{channel: channel})
	}
	q.topics[i].filters = append(q.topics[i].filters, f)
}

// inChannel returns the filter as it is used on the topic of one of its channels: without the other values of
// #h, which would be carried to each of them and match nothing there that this one does not. It shares the
// other lists.
func inChannel(f *commonv1.Filter, channel string) *commonv1.Filter {
	one := &commonv1.Filter{
		Ids: f.GetIds(), Authors: f.GetAuthors(), Kinds: f.GetKinds(),
		Since: f.Since, Until: f.Until, Limit: f.Limit, Tags: slices.Clone(f.GetTags()),
	}
	for i, t := range one.Tags {
		if t.GetName() == "h" {
			one.Tags[i] = &commonv1.TagCondition{Name: "h", Values: [][]byte{[]byte(channel)}}
		}
	}
	return one
}

// req opens a subscription, replacing one with the same id.
func (s *Session) req(f *wire.Frame, start time.Time) {
	p := s.Principal()
	if p == nil {
		s.closed(f.SubID, fault.Frame(s.stranger()))
		return
	}
	q, err := s.srv.planFor(p, f.Filters)
	if err != nil {
		s.refuse(f.SubID, fault.Frame(err))
		return
	}
	if len(q.filters) == 0 && len(q.topics) == 0 {
		// Nothing can match, now or later: there is nothing to keep open.
		s.close(f.SubID)
		s.conn.Control(cork.Build(len(f.SubID)+16, func(b []byte) []byte { return wire.AppendEOSE(b, f.SubID) }))
		return
	}
	sub := newSubscription(s, f.SubID, q)
	if why := s.open(sub); why != "" {
		s.closed(f.SubID, fault.FrameText(fault.Overloaded, why))
		return
	}
	// The job may queue for long: what it needs is kept by the subscription, which lets go of it when it ends.
	s.jobs.add(s.ctx, func() {
		if text := s.run(sub, p); text != "" {
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

// open enters sub into the books; what it replaces is closed first, so that its frames cannot follow. It returns
// why that is not possible, if so; what was to be replaced is closed then too.
func (s *Session) open(sub *subscription) (why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.subs[sub.id]
	if old == nil && s.srv.cfg.MaxSubs > 0 && len(s.subs) >= s.srv.cfg.MaxSubs {
		return "too many subscriptions"
	}
	if old != nil {
		delete(s.subs, sub.id)
		old.end()
	}
	if most := s.srv.cfg.MaxSubValues; most > 0 && s.values.Load()+sub.cost > most {
		return "too many values in the filters of all subscriptions"
	}
	s.values.Add(sub.cost)
	s.subs[sub.id] = sub
	s.srv.Metrics.Subscribed(s.ctx, 1)
	return ""
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
func (s *Session) run(sub *subscription, p *commonv1.Principal) string {
	// Not a child that the connection would know, since it would keep the room for children as long as it lives: the end of
	// the subscription, which that of the connection brings with it, ends the job.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(s.ctx))
	defer cancel(nil)
	q, ok := sub.begin(func() { cancel(errEnded) })
	if !ok {
		return ""
	}
	defer sub.pause()

	// Live first, then history: whatever commits in between is held, and the snapshot tells what the
	// history has had already.
	if err := s.attach(ctx, sub, p); err != nil {
		return fault.Frame(err)
	}
	if !sub.startReading() {
		return ""
	}
	if len(q.invites) > 0 {
		s.invite(ctx, sub, q.invites, p)
	}
	if q.stored || len(q.presences) > 0 {
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

// What subscriptions cost that are being attached, in values of filters. Fan-out files them one after the other, between
// events, and the longest filter takes a thousand times as long as an ordinary one: so those of less than largeUnit are not
// made to wait for more than largePlaces times that of larger ones, whose turns depend on what their keys have used.
const (
	largeUnit   = 512
	largePlaces = 16
)

// attach attaches the subscription to all its topics.
func (s *Session) attach(ctx context.Context, sub *subscription, p *commonv1.Principal) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.srv.cfg.AttachTimeout, fault.New(fault.Overloaded, ""))
	defer cancel()
	if n := int(sub.cost / largeUnit); n > 0 {
		who := s.asker(p)
		who.Places = n
		release, err := s.srv.large.Acquire(ctx, who)
		if err != nil {
			return err
		}
		defer release()
	}
	if err := s.srv.Live.Admit(ctx); err != nil {
		return err
	}
	sub.attach(p)
	select {
	case <-sub.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// count answers a COUNT (NIP-45).
func (s *Session) count(f *wire.Frame, start time.Time) {
	p := s.Principal()
	if p == nil {
		s.closed(f.SubID, fault.Frame(s.stranger()))
		return
	}
	q, err := s.srv.planFor(p, f.Filters)
	if err != nil {
		s.closed(f.SubID, fault.Frame(err))
		return
	}
	if len(q.filters) == 0 && len(q.presences) == 0 {
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
		var n uint64
		var hll []byte
		err := s.inTurn(s.ctx, func() (err error) {
			n, hll, err = s.srv.count(s.ctx, s.asker(p), s.community.ID, q, p)
			return err
		})
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
