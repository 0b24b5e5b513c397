package search

import (
	"context"
	"iter"
	"slices"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/rpc"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/search/internal/access"
	"github.com/apiary-relay/apiary/services/search/internal/hll"
	"github.com/apiary-relay/apiary/services/search/internal/plan"
	"github.com/apiary-relay/apiary/services/search/internal/store"
)

// Query implements searchv1.SearchServiceServer.
func (s *Service) Query(req *searchv1.QueryRequest, stream grpc.ServerStreamingServer[searchv1.QueryResponse]) (err error) {
	ctx := stream.Context()
	end, err := s.admit(ctx, callQuery)
	if err != nil {
		return err
	}
	defer func() { end(err) }()
	reader, filters, err := s.readRequest(req)
	if err != nil {
		return err
	}
	pages, err := readPaging(req.GetPaging(), filters)
	if err != nil {
		return err
	}
	snapshot, found, answers, err := s.query(ctx, reader, filters, pages)
	if err != nil {
		return err
	}
	cut := slices.ContainsFunc(slices.Concat(found, answers), s.fills(len(filters)))
	return send(stream, &searchv1.QueryResponse{Snapshot: snapshot.Proto(), Cut: cut}, join(found, merge(answers)))
}

// query answers each filter that can match something from one snapshot: those with a search in found, best
// first, the others in answers, newest first.
// pages is empty or says for each filter which page is wanted.
func (s *Service) query(ctx context.Context, r access.Reader, filters []*nostr.Filter, pages []plan.Page) (snap store.Snapshot, found, answers [][]store.Event, err error) {
	share := s.share(len(filters))
	var searches, others []plan.Plan
	for i, f := range filters {
		var p plan.Plan
		var ok bool
		if len(pages) == 0 {
			p, ok = plan.Rows(f, r, s.limit(f), share)
		} else {
			p, ok = plan.RowsOf(f, r, pages[i], s.limit(f), share)
		}
		switch {
		case !ok:
		case f.Search != "":
			searches = append(searches, p)
		default:
			others = append(others, p)
		}
	}
	snap, answers, err = s.store.Query(ctx, slices.Concat(searches, others), s.metrics.queried(ctx))
	if err != nil {
		return store.Snapshot{}, nil, nil, err
	}
	return snap, answers[:len(searches)], answers[len(searches):], nil
}

// share is how many bytes of raw JSON each of so many filters may have.
func (s *Service) share(filters int) int64 { return s.cfg.AnswerBytes / int64(max(filters, 1)) }

// fills returns whether the answer to one of so many filters has used up its share, so that others may have been left out.
func (s *Service) fills(filters int) func(answer []store.Event) bool {
	share := s.share(filters)
	return func(answer []store.Event) bool {
		var size int64
		for i := range answer {
			size += int64(len(answer[i].Raw))
		}
		return size >= share
	}
}

// join yields what searches found, in their order, and then the rest, each event once.
func join(found [][]store.Event, rest iter.Seq[*store.Event]) iter.Seq[*store.Event] {
	if len(found) == 0 {
		return rest
	}
	return func(yield func(*store.Event) bool) {
		seen := make(map[nostr.ID]struct{})
		for _, answer := range found {
			for i := range answer {
				if _, again := seen[answer[i].ID]; again {
					continue
				}
				seen[answer[i].ID] = struct{}{}
				if !yield(&answer[i]) {
					return
				}
			}
		}
		for e := range rest {
			if _, again := seen[e.ID]; !again && !yield(e) {
				return
			}
		}
	}
}

// limit returns how many events a filter may have.
func (s *Service) limit(f *nostr.Filter) int {
	if f.Limit == nil {
		return s.cfg.Limit
	}
	return min(*f.Limit, s.cfg.Limit)
}

// merge yields the events of answers, each of them newest first, newest first and each event once.
func merge(answers [][]store.Event) iter.Seq[*store.Event] {
	return func(yield func(*store.Event) bool) {
		rest := make([][]store.Event, 0, len(answers))
		for _, a := range answers {
			if len(a) > 0 {
				rest = append(rest, a)
			}
		}
		var last *store.Event
		for len(rest) > 0 {
			first := 0
			for i := 1; i < len(rest); i++ {
				if rest[i][0].Before(&rest[first][0]) {
					first = i
				}
			}
			e := &rest[first][0]
			if rest[first] = rest[first][1:]; len(rest[first]) == 0 {
				rest = append(rest[:first], rest[first+1:]...)
			}
			// Equal events are neighbours: an id has one place in the order.
			if last != nil && last.ID == e.ID {
				continue
			}
			if last = e; !yield(e) {
				return
			}
		}
	}
}

// send sends the events in responses of bounded size; at least the first one, which is begun.
func send(stream grpc.ServerStreamingServer[searchv1.QueryResponse], resp *searchv1.QueryResponse, events iter.Seq[*store.Event]) error {
	size := 0
	for e := range events {
		if size > 0 && size+len(e.Raw) > rpc.BatchBytes {
			if err := stream.Send(resp); err != nil {
				return fault.Wrap(fault.Cancelled, "", err) // the stream is broken, there is nobody to tell
			}
			resp, size = &searchv1.QueryResponse{}, 0
		}
		resp.Events = append(resp.Events, e.Raw)
		size += len(e.Raw)
	}
	if err := stream.Send(resp); err != nil {
		return fault.Wrap(fault.Cancelled, "", err)
	}
	return nil
}

// Count implements searchv1.SearchServiceServer.
func (s *Service) Count(ctx context.Context, req *searchv1.CountRequest) (resp *searchv1.CountResponse, err error) {
	end, err := s.admit(ctx, callCount)
	if err != nil {
		return nil, err
	}
	defer func() { end(err) }()
	reader, filters, err := s.readRequest(req)
	if err != nil {
		return nil, err
	}
	if offset, ok := hll.Offset(filters); ok {
		return s.estimate(ctx, reader, filters[0], offset)
	}
	n, err := s.count(ctx, reader, filters)
	if err != nil {
		return nil, err
	}
	return &searchv1.CountResponse{Count: uint64(n)}, nil
}

// estimate counts what one filter matches, and says besides what NIP-45 lets clients merge over relays.
func (s *Service) estimate(ctx context.Context, r access.Reader, f *nostr.Filter, offset int) (*searchv1.CountResponse, error) {
	var registers hll.Registers
	tooMany := s.cfg.CountLimit + 1
	n := 0
	if p, ok := plan.Authors(f, r, tooMany); ok {
		var err error
		if n, registers, err = s.store.Estimate(ctx, p, offset, s.metrics.counted(ctx)); err != nil {
			return nil, err
		}
	}
	if n >= tooMany {
		return nil, errTooMany
	}
	return &searchv1.CountResponse{Count: uint64(n), Hll: registers[:]}, nil
}

// errTooMany refuses a count instead of answering with the limit: a client takes a count for exact.
var errTooMany = fault.New(fault.Restricted, "count filter requires narrower constraints")

// count counts the distinct events that filters match.
func (s *Service) count(ctx context.Context, r access.Reader, filters []*nostr.Filter) (int, error) {
	tooMany := s.cfg.CountLimit + 1
	build := plan.Count
	if len(filters) > 1 {
		build = plan.IDs
	}
	plans := make([]plan.Plan, 0, len(filters))
	for _, f := range filters {
		if p, ok := build(f, r, tooMany); ok {
			plans = append(plans, p)
		}
	}
	if len(plans) == 0 {
		return 0, nil
	}
	n, err := s.store.Count(ctx, plans, len(filters) == 1, tooMany, s.metrics.counted(ctx))
	if err != nil {
		return 0, err
	}
	if n >= tooMany {
		return 0, errTooMany
	}
	return n, nil
}
