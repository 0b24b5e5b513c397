package bridge

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
)

// searchResults is how many events a search finds unless its filter says.
const searchResults = 100

// windowsTime bounds a query with windows of threads.
const windowsTime = 8 * time.Second

// Query answers a POST with an array of filters: the stored events as an array. Filters without extensions are answered
// as the history of a REQ with them, and then each of the others by itself, in order.
func (b *Bridge) Query(w http.ResponseWriter, r *http.Request, c session.Community) {
	b.serve(w, r, c, b.cfg.Wire.Frame, func(ctx context.Context, call call) ([]byte, error) {
		body, extended, err := extend(call.body)
		if err != nil {
			return nil, err
		}
		filters, err := b.filters(&call, body)
		if err != nil {
			return nil, err
		}
		parts, err := b.split(&call, filters, extended)
		if err != nil {
			return nil, err
		}
		ctx, cancel := b.limitWindows(ctx, extended)
		defer cancel()
		answer := answer{text: []byte{'['}, most: b.cfg.Answer}
		for _, ask := range parts {
			if err := answer.take(ctx, ask); err != nil {
				return nil, err
			}
		}
		return append(answer.text, ']'), nil
	})
}

// part asks for what is answered by itself: filters as in a REQ, one with its page, the window of a channel or of a thread, a feed, or a page of a
// thread.
type part func(ctx context.Context, each func(raw []byte) error) error

// answer is an array of events that is not complete.
type answer struct {
	text []byte
	most int // bytes
}

// take adds what a part asks for. Where it changes meanwhile who may read, it is asked for once more.
func (a *answer) take(ctx context.Context, ask part) error {
	before := len(a.text)
	err := ask(ctx, a.add)
	if errors.Is(err, session.ErrMoved) {
		a.text = a.text[:before]
		err = ask(ctx, a.add)
	}
	return err
}

func (a *answer) add(raw []byte) error {
	if len(a.text)+len(raw)+len(",]") > a.most {
		return fault.New(fault.Invalid, fmt.Sprintf("the answer is larger than %d bytes: ask for less with limit, since or until", a.most))
	}
	if len(a.text) > 1 {
		a.text = append(a.text, ',')
	}
	a.text = append(a.text, raw...)
	return nil
}

// limitWindows bounds the time of a query with windows of threads, as clients that page along one expect.
func (b *Bridge) limitWindows(ctx context.Context, extended []*extension) (context.Context, context.CancelFunc) {
	if !slices.ContainsFunc(extended, (*extension).isThreadWindow) {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, windowsTime, fault.New(fault.Overloaded, "thread windows took too long; ask for less"))
}

// split makes parts of filters; extended is empty or has what each of them says besides.
func (b *Bridge) split(call *call, filters []nostr.Filter, extended []*extension) ([]part, error) {
	var plain []nostr.Filter
	var parts []part
	windows := 0
	for i, f := range filters {
		if f.Search != "" && f.Limit == nil {
			f.Limit = new(min(searchResults, b.cfg.Limit))
		}
		if len(extended) == 0 || extended[i] == nil {
			plain = append(plain, f)
			continue
		}
		if extended[i].isThreadWindow() {
			if windows++; windows > maxThreadWindows {
				return nil, fault.New(fault.Invalid, "at most four thread windows per query")
			}
		}
		if len(parts) == maxExtended {
			return nil, fault.New(fault.Invalid, fmt.Sprintf("invalid filters: more than %d with fields that are not of NIP-01", maxExtended))
		}
		ask, err := b.extended(call, &f, extended[i])
		if err != nil {
			return nil, err
		}
		parts = append(parts, ask)
	}
	if len(plain) > 0 {
		parts = slices.Insert(parts, 0, func(ctx context.Context, each func([]byte) error) error {
			return b.Sessions.Stored(ctx, call.community.ID, call.principal(), plain, each)
		})
	}
	return parts, nil
}

// extended is the part of a filter with extensions.
func (b *Bridge) extended(call *call, f *nostr.Filter, e *extension) (part, error) {
	c, p := call.community, call.principal()
	switch {
	case e.ThreadWindow:
		w, err := e.threadWindow(f)
		return func(ctx context.Context, each func([]byte) error) error {
			return b.Sessions.ThreadWindow(ctx, c, p, w, each)
		}, err
	case e.TopLevel:
		w, err := e.window(f)
		return func(ctx context.Context, each func([]byte) error) error {
			return b.Sessions.Window(ctx, c.ID, p, w, each)
		}, err
	case e.FeedTypes != nil:
		feed, err := e.feed(f)
		return func(ctx context.Context, each func([]byte) error) error {
			return b.Sessions.Feed(ctx, c.ID, p, feed, each)
		}, err
	case e.DepthLimit != nil:
		t, err := e.thread(f)
		return func(ctx context.Context, each func([]byte) error) error {
			return b.Sessions.Thread(ctx, c.ID, p, t, each)
		}, err
	default:
		paging, err := e.paging(f, b.cfg.Limit)
		return func(ctx context.Context, each func([]byte) error) error {
			_, err := b.Sessions.StoredPage(ctx, c.ID, p, *f, paging, each)
			return err
		}, err
	}
}

// Count answers a POST with an array of filters: {"count":n}, with "hll" as in the answer to a COUNT.
func (b *Bridge) Count(w http.ResponseWriter, r *http.Request, c session.Community) {
	b.serve(w, r, c, b.cfg.Wire.Frame, func(ctx context.Context, call call) ([]byte, error) {
		filters, err := b.filters(&call, call.body)
		if err != nil {
			return nil, err
		}
		n, hll, err := b.Sessions.Count(ctx, c.ID, call.principal(), filters)
		if fault.ReasonOf(err) == fault.Restricted {
			// Who asks may count, and has asked for too much.
			err = fault.Wrap(fault.Invalid, fault.Message(err), err)
		}
		if err != nil {
			return nil, err
		}
		return json.Marshal(struct {
			Count uint64 `json:"count"`
			HLL   string `json:"hll,omitempty"`
		}{n, hex.EncodeToString(hll)})
	})
}

func (c *call) principal() *commonv1.Principal {
	return &commonv1.Principal{Pubkeys: [][]byte{c.key[:]}}
}

// filters decodes a body by the rules of REQ, and judges all that it holds before anything is asked.
func (b *Bridge) filters(call *call, body []byte) ([]nostr.Filter, error) {
	filters, err := wire.DecodeFilters(body, b.cfg.Wire)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, "invalid filters: "+publicCause(err), err)
	}
	err = b.Sessions.Judge(call.principal(), filters)
	if fault.ReasonOf(err) == fault.Restricted {
		err = asFrame(err)
	}
	return filters, err
}
