package session

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
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
// is not there, nothing is passed. The error is ErrMoved, after some was passed, if who may read changed meanwhile.
func (srv *Server) Window(ctx context.Context, community int64, p *commonv1.Principal, w Window, each func(raw []byte) error) error {
	channels, _ := w.Filter.Tag('h')
	if len(channels) != 1 {
		return fault.New(fault.Invalid, "top_level requires exactly one #h channel")
	}
	if _, err := srv.planFor(p, []nostr.Filter{w.Filter}); err != nil {
		return err
	}
	page := srv.reader(community, p, each)
	before, err := page.enter(ctx, channels[0])
	if err != nil || !before.readable {
		return err
	}
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
	if err := page.leave(ctx, before, "channel"); err != nil {
		return err
	}
	return page.sign(ctx, append(overlays, boundsOf(channels[0], w, rows, more)))
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
	var last []byte // not passed yet
	found := 0
	pass := func() error {
		row, err := r.pass(last)
		rows = append(rows, row)
		return err
	}
	cut, err := r.srv.StoredPage(ctx, r.community, r.principal, f, &searchv1.Paging{AfterId: w.After, TopLevel: true}, func(raw []byte) (err error) {
		if found > 0 {
			err = pass()
		}
		found++
		last = raw
		return err
	})
	switch more = cut || found > limit; {
	case err != nil || found == 0:
		return rows, false, err
	case more && found > 1:
		return rows, true, nil // the last one is on the next page
	default:
		err = pass()
		return rows, more, err
	}
}

// summaries are what the relay says about the threads of the rows, in the order of these.
func (r *reader) summaries(ctx context.Context, rows []place) ([]*ingestv1.Overlay, error) {
	req := &searchv1.DescribeThreadsRequest{Community: r.community, Principal: r.principal}
	for i := range rows {
		req.Roots = append(req.Roots, rows[i].id[:])
	}
	var resp *searchv1.DescribeThreadsResponse
	err := r.inTurn(ctx, func(ctx context.Context) (err error) {
		resp, err = r.srv.Search.DescribeThreads(ctx, req)
		return err
	})
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
	return &ingestv1.Overlay{Kind: uint32(nostr.KindWindowBounds), Content: "{" + cursorOf(rows, more) + "}", Tags: []*ingestv1.OverlayTag{
		{Values: []string{"d", name}}, {Values: []string{"h", channel}},
	}}
}
