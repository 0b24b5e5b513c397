package session

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// Overlays signs what is made up for one answer; the generated client of ingest has it.
type Overlays interface {
	SignOverlays(ctx context.Context, in *ingestv1.SignOverlaysRequest, opts ...grpc.CallOption) (
		*ingestv1.SignOverlaysResponse, error)
}

// Bounds of a window.
const (
	windowRows    = 50  // unless the filter says
	maxWindowRows = 200 // whatever it says
	maxAuxPages   = 4   // of the largest limit of a filter, each of the two times that events about others are looked for
)

// about are the kinds of events that change how another one is shown: deletions, reactions and edits. unmade are those
// of them that undo.
var (
	about  = []nostr.Kind{nostr.KindDeletion, nostr.KindReaction, nostr.KindDeleteEvent, nostr.KindMessageEdit}
	unmade = []nostr.Kind{nostr.KindDeletion, nostr.KindDeleteEvent}
)

// Window is a page of what a channel shows when no thread is open.
type Window struct {
	// Filter says what is shown. It has one channel (#h) and no search; its limit is 50 unless it says, and 1 to 200.
	Filter nostr.Filter
	// After is the id of the last row of the page before, which is at the filter's until; empty for the newest page.
	After []byte
	// Aux is set to have the events with the rows that say how they are shown.
	Aux bool
	// Summaries is set to have summaries of the threads that begin with the rows (kind 39005).
	Summaries bool
}

// Window passes the rows of a window to each, newest first, then what is about them and their threads, if wanted, and at last what the relay
// signs about the page: whether there is more, and where (kind 39006). Of a channel that may not be read, or
// is not there, nothing is passed.
func (srv *Server) Window(ctx context.Context, community int64, p *commonv1.Principal, w Window, each func(raw []byte) error) error {
	channels, _ := w.Filter.Tag('h')
	if len(channels) != 1 {
		return fault.New(fault.Invalid, "top_level requires exactly one #h channel")
	}
	if _, err := srv.planFor(p, []nostr.Filter{w.Filter}); err != nil {
		return err
	}
	readable, err := srv.readable(ctx, community, channels[0], p)
	if err != nil || !readable {
		return err
	}
	page := reader{srv: srv, community: community, principal: p, channel: channels[0], each: each, seen: make(map[nostr.ID]bool)}
	rows, more, err := page.rows(ctx, w)
	if err != nil {
		return err
	}
	if w.Aux {
		if err := page.aux(ctx, rows); err != nil {
			return err
		}
	}
	var overlays []*ingestv1.Overlay
	if w.Summaries {
		if overlays, err = page.summaries(ctx, rows); err != nil {
			return err
		}
	}
	overlays = append(overlays, boundsOf(channels[0], w, rows, more))
	signed, err := srv.Overlays.SignOverlays(ctx, &ingestv1.SignOverlaysRequest{Overlays: overlays})
	if err != nil {
		return err
	}
	for _, raw := range signed.GetEvents() {
		if err := each(raw); err != nil {
			return err
		}
	}
	return nil
}

// readable asks whether one of the keys may read a channel.
func (srv *Server) readable(ctx context.Context, community int64, channel string, p *commonv1.Principal) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, srv.cfg.CallTimeout, fault.New(fault.Overloaded, ""))
	defer cancel()
	resp, err := srv.Search.CheckAccess(ctx, &searchv1.CheckAccessRequest{Community: community, Channel: channel, Pubkeys: p.GetPubkeys()})
	if err != nil {
		return false, err
	}
	return slices.Contains(resp.GetAllowed(), true), nil
}

// place is where an event stands in the order of stored events.
type place struct {
	id        nostr.ID
	createdAt int64
}

// reader reads events of one channel for one answer.
type reader struct {
	srv       *Server
	community int64
	principal *commonv1.Principal
	channel   string
	each      func(raw []byte) error
	seen      map[nostr.ID]bool // what was passed to each
}

// rows passes the rows, and returns their places and whether there are more behind them.
func (r *reader) rows(ctx context.Context, w Window) (rows []place, more bool, err error) {
	limit := windowRows
	if w.Filter.Limit != nil {
		limit = *w.Filter.Limit
	}
	limit = min(max(limit, 1), maxWindowRows, max(r.srv.cfg.Limit-1, 1))
	wanted := limit + 1 // one more tells whether there are more
	f := w.Filter
	f.Limit = &wanted
	err = r.srv.StoredPage(ctx, r.community, r.principal, f, &searchv1.Paging{AfterId: w.After, TopLevel: true}, func(raw []byte) error {
		if more = len(rows) == limit; more {
			return nil
		}
		row, err := r.pass(raw)
		rows = append(rows, row)
		return err
	})
	return rows, more, err
}

// pass passes an event on, unless it was before.
func (r *reader) pass(raw []byte) (place, error) {
	ev, err := wire.DecodeEvent(raw, wire.Limits{})
	if err != nil {
		return place{}, fault.Internal(err)
	}
	at := place{ev.ID, ev.CreatedAt}
	if r.seen[ev.ID] {
		return at, nil
	}
	r.seen[ev.ID] = true
	return at, r.each(raw)
}

// aux passes what is about the rows, and what undoes that.
func (r *reader) aux(ctx context.Context, rows []place) error {
	found, err := r.references(ctx, about, rows)
	if err != nil {
		return err
	}
	_, err = r.references(ctx, unmade, found)
	return err
}

// references passes the newest events of the kinds in the channel that refer to others by an e tag.
func (r *reader) references(ctx context.Context, kinds []nostr.Kind, to []place) (found []place, err error) {
	if len(to) == 0 {
		return nil, nil
	}
	ids := make([]string, len(to))
	for i := range to {
		ids[i] = to[i].id.String()
	}
	limit := r.srv.cfg.Limit
	f := nostr.Filter{Kinds: kinds, Limit: &limit, Tags: []nostr.TagCondition{
		{Name: 'e', Values: ids}, {Name: 'h', Values: []string{r.channel}},
	}}
	paging := &searchv1.Paging{}
	for range maxAuxPages {
		before := len(found)
		err := r.srv.StoredPage(ctx, r.community, r.principal, f, paging, func(raw []byte) error {
			at, err := r.pass(raw)
			found = append(found, at)
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(found)-before < limit {
			break
		}
		last := found[len(found)-1]
		f.Until, paging = &last.createdAt, &searchv1.Paging{AfterId: last.id[:]}
	}
	return found, nil
}

// summaries are what the relay says about the threads of the rows, in the order of these.
func (r *reader) summaries(ctx context.Context, rows []place) ([]*ingestv1.Overlay, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.srv.cfg.CallTimeout, fault.New(fault.Overloaded, ""))
	defer cancel()
	req := &searchv1.DescribeThreadsRequest{Community: r.community, Principal: r.principal}
	for i := range rows {
		req.Roots = append(req.Roots, rows[i].id[:])
	}
	resp, err := r.srv.Search.DescribeThreads(ctx, req)
	if err != nil {
		return nil, err
	}
	of := make(map[string]*searchv1.Thread)
	for _, t := range resp.GetThreads() {
		of[hex.EncodeToString(t.GetRoot())] = t
	}
	var overlays []*ingestv1.Overlay
	for i := range rows {
		root := rows[i].id.String()
		t := of[root]
		if t == nil {
			continue
		}
		participants := make([]string, len(t.GetParticipants()))
		for k, key := range t.GetParticipants() {
			participants[k] = `"` + hex.EncodeToString(key) + `"`
		}
		content := fmt.Sprintf(`{"reply_count":%d,"descendant_count":%d,"last_reply_at":%d,"participants":[%s]}`,
			t.GetReplies(), t.GetDescendants(), t.GetLastReplyAt(), strings.Join(participants, ","))
		overlays = append(overlays, &ingestv1.Overlay{
			Kind: uint32(nostr.KindThreadSummary), Content: content, LeastCreatedAt: t.GetSummaryAt(),
			Tags: []*ingestv1.OverlayTag{{Values: []string{"e", root}}, {Values: []string{"d", root}}, {Values: []string{"h", r.channel}}},
		})
	}
	return overlays, nil
}

// boundsOf is what the relay says about a page.
func boundsOf(channel string, w Window, rows []place, more bool) *ingestv1.Overlay {
	name := channel + ":head"
	if w.Filter.Until != nil && len(w.After) > 0 {
		name = channel + ":" + strconv.FormatInt(*w.Filter.Until, 10) + ":" + nostr.ID(w.After).String()
	}
	next := "null"
	if more {
		last := rows[len(rows)-1]
		next = fmt.Sprintf(`{"created_at":%d,"id":"%s"}`, last.createdAt, last.id)
	}
	text := fmt.Sprintf(`{"has_more":%t,"next_cursor":%s}`, more, next)
	return &ingestv1.Overlay{Kind: uint32(nostr.KindWindowBounds), Content: text, Tags: []*ingestv1.OverlayTag{
		{Values: []string{"d", name}}, {Values: []string{"h", channel}},
	}}
}
