package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// Bounds of a page of a thread.
const (
	threadReplies    = 100 // unless the filter says
	maxThreadReplies = 500 // whatever it says
)

// Thread is a page of the replies of a thread, the oldest first.
type Thread struct {
	// Filter has the thread's first event (#e), and may have kinds, one channel (#h) and a limit: 100 unless it says, 1 to 500.
	Filter nostr.Filter
	// Depth is how deep replies are at most; those to the first event are at 1.
	Depth uint32
	// After is the created_at of the last reply of the page before, nil for the first page, and AfterID its id. Without that all of its
	// second are on this page.
	After   *int64
	AfterID []byte
	// Aux is set to have the events with the replies that say how they and the first event are shown.
	Aux bool
}

// Thread passes replies of a thread to each, the oldest first, and then what is about them, if wanted.
func (srv *Server) Thread(ctx context.Context, community int64, p *commonv1.Principal, t Thread, each func(raw []byte) error) error {
	if err := srv.Judge(p, []nostr.Filter{t.Filter}); err != nil || t.Filter.MatchesNothing {
		return err
	}
	roots, _ := t.Filter.Tag('e')
	channels, _ := t.Filter.Tag('h')
	if len(roots) != 1 || len(channels) > 1 {
		return fault.New(fault.Invalid, "depth_limit requires exactly one #e")
	}
	root, err := nostr.ParseID(roots[0])
	if err != nil {
		return fault.New(fault.Invalid, "depth_limit requires an event id in #e")
	}
	page := srv.reader(community, p, each)
	limit := threadReplies
	if t.Filter.Limit != nil {
		limit = *t.Filter.Limit
	}
	req := &searchv1.QueryThreadRequest{
		Root: root[:], Depth: t.Depth, Limit: uint32(min(max(limit, 1), maxThreadReplies)), Kinds: kindsOf(&t.Filter),
		AfterCreatedAt: math.MinInt64, AfterId: t.AfterID,
	}
	if t.After != nil {
		req.AfterCreatedAt = *t.After
	}
	if len(channels) == 1 {
		page.channel = channels[0]
	}
	replies, _, err := page.replies(ctx, req)
	if err != nil || !t.Aux {
		return err
	}
	return page.aux(ctx, append(replies, place{id: root}))
}

// kindsOf returns the kinds of a filter, ascending and each once; not nil.
func kindsOf(f *nostr.Filter) []uint32 {
	kinds := make([]uint32, 0, len(f.Kinds))
	for _, k := range f.Kinds {
		kinds = append(kinds, uint32(k))
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// replies passes a page of a thread, and returns the places of the replies and whether there are more behind them. It completes
// the request by who reads, and in which channel.
func (r *reader) replies(ctx context.Context, req *searchv1.QueryThreadRequest) (found []place, more bool, err error) {
	req.Community, req.Principal, req.Channel = r.community, r.principal, r.channel
	var resp *searchv1.QueryThreadResponse
	err = r.inTurn(ctx, func(ctx context.Context) (err error) {
		resp, err = r.srv.Search.QueryThread(ctx, req)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	for _, raw := range resp.GetEvents() {
		reply, err := r.pass(raw)
		if err != nil {
			return nil, false, err
		}
		found = append(found, reply)
	}
	return found, resp.GetMore() && len(found) > 0, nil
}

// ThreadWindow is a page of the replies of a thread, the newest first, with bounds that the relay signs.
type ThreadWindow struct {
	// Filter has one channel (#h) and the thread's first event (#e), and may have kinds. Its until is the created_at of the cursor, nil for
	// the newest page.
	Filter nostr.Filter
	// Root is the first event, that of the filter.
	Root nostr.ID
	// After is the id of the cursor; empty for the newest page.
	After []byte
	// Limit is how many replies there are at most, Depth how deep they are.
	Limit, Depth uint32
	// Aux is set to have the events with the replies that say how they and the first event are shown.
	Aux bool
}

// ThreadWindow passes the replies of a window to each, newest first, then what is about them and the first event, if wanted, and at last what the relay signs about
// the page (kind 39007). Of a channel that may not be read, or is not there, nothing is passed; a first event that is
// missing, or may not be read, is one without replies. The error is ErrMoved, after some was passed, if who may read changed meanwhile.
func (srv *Server) ThreadWindow(ctx context.Context, c Community, p *commonv1.Principal, w ThreadWindow, each func(raw []byte) error) error {
	channels, _ := w.Filter.Tag('h')
	if len(channels) != 1 || len(p.GetPubkeys()) == 0 {
		return fault.New(fault.Invalid, "thread_window requires exactly one #h channel")
	}
	if (w.Filter.Until != nil) != (len(w.After) == len(nostr.ID{})) {
		return fault.New(fault.Invalid, "thread_window cursor requires both until and before_id, or neither")
	}
	if err := srv.Judge(p, []nostr.Filter{w.Filter}); err != nil {
		return err
	}
	page := srv.reader(c.ID, p, each)
	before, err := page.enter(ctx, channels[0])
	if err != nil || !before.readable {
		return err
	}
	req := &searchv1.QueryThreadRequest{
		Root: w.Root[:], Depth: w.Depth, Limit: w.Limit, Kinds: kindsOf(&w.Filter), NewestFirst: true, AfterId: w.After,
	}
	if w.Filter.Until != nil {
		req.AfterCreatedAt = *w.Filter.Until
	}
	var rows []place
	more := false
	if !w.Filter.MatchesNothing {
		if rows, more, err = page.replies(ctx, req); err != nil {
			return err
		}
	}
	if w.Aux {
		if err := page.aux(ctx, append(slices.Clip(rows), place{id: w.Root})); err != nil {
			return err
		}
	}
	if err := page.leave(ctx, before, "thread"); err != nil {
		return err
	}
	return page.sign(ctx, []*ingestv1.Overlay{{
		Kind:    uint32(nostr.KindThreadBounds),
		Content: `{"version":1,"direction":"older",` + cursorOf(rows, more) + "}",
		Tags: []*ingestv1.OverlayTag{
			{Values: []string{"d", w.binding(c.Host, nostr.PubKey(p.GetPubkeys()[0]), channels[0])}}, {Values: []string{"h", channels[0]}}, {Values: []string{"e", w.Root.String()}},
		},
	}})
}

// binding names everything that the window was asked for with, so that its bounds are not taken for those of another: tw:1: and the SHA-256 of a JSON
// array, which clients make as well. No text in it needs escapes: hosts and channels have letters, digits and a few signs.
func (w *ThreadWindow) binding(host string, reader nostr.PubKey, channel string) string {
	cursor := "null"
	if w.Filter.Until != nil {
		cursor = fmt.Sprintf(`[%d,"%s"]`, *w.Filter.Until, nostr.ID(w.After))
	}
	var kinds []string
	for _, k := range kindsOf(&w.Filter) {
		kinds = append(kinds, strconv.Itoa(int(k)))
	}
	sum := sha256.Sum256(fmt.Appendf(nil, `["tw",1,"older","%s","%s","%s","%s",%d,%d,[%s],%s,%t]`,
		host, reader, channel, w.Root, w.Limit, w.Depth, strings.Join(kinds, ","), cursor, w.Aux))
	return "tw:1:" + hex.EncodeToString(sum[:])
}
