package bridge

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
)

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
		parts, err := b.split(filters, extended)
		if err != nil {
			return nil, err
		}
		answer := []byte{'['}
		add := func(raw []byte) error {
			if len(answer)+len(raw)+len(",]") > b.cfg.Answer {
				return fault.New(fault.Invalid, fmt.Sprintf(
					"the answer is larger than %d bytes: ask for less with limit, since or until", b.cfg.Answer))
			}
			if len(answer) > 1 {
				answer = append(answer, ',')
			}
			answer = append(answer, raw...)
			return nil
		}
		for _, part := range parts {
			switch {
			case part.window != nil:
				err = b.Sessions.Window(ctx, c.ID, call.principal(), *part.window, add)
			case part.feed != nil:
				err = b.Sessions.Feed(ctx, c.ID, call.principal(), *part.feed, add)
			case part.thread != nil:
				err = b.Sessions.Thread(ctx, c.ID, call.principal(), *part.thread, add)
			case part.paging != nil:
				err = b.Sessions.StoredPage(ctx, c.ID, call.principal(), part.filters[0], part.paging, add)
			default:
				err = b.Sessions.Stored(ctx, c.ID, call.principal(), part.filters, add)
			}
			if err != nil {
				return nil, err
			}
		}
		return append(answer, ']'), nil
	})
}

// searchResults is how many events a search finds unless its filter says.
const searchResults = 100

// part is what is answered by itself: filters as in a REQ, one with its page, the window of a channel, a feed, or a page of a thread.
type part struct {
	filters []nostr.Filter
	paging  *searchv1.Paging
	window  *session.Window
	feed    *session.Feed
	thread  *session.Thread
}

// split makes parts of filters; extended is empty or has what each of them says besides.
func (b *Bridge) split(filters []nostr.Filter, extended []*extension) ([]part, error) {
	plain := part{}
	var parts []part
	for i, f := range filters {
		if f.Search != "" && f.Limit == nil {
			f.Limit = new(min(searchResults, b.cfg.Limit))
		}
		if len(extended) == 0 || extended[i] == nil {
			plain.filters = append(plain.filters, f)
			continue
		}
		if len(parts) == maxExtended {
			return nil, fault.New(fault.Invalid, fmt.Sprintf("invalid filters: more than %d with fields that are not of NIP-01", maxExtended))
		}
		var err error
		one := part{filters: []nostr.Filter{f}}
		switch {
		case extended[i].TopLevel:
			one.window, err = extended[i].window(&f)
		case extended[i].FeedTypes != nil:
			one.feed, err = extended[i].feed(&f)
		case extended[i].DepthLimit != nil:
			one.thread, err = extended[i].thread(&f)
		default:
			one.paging, err = extended[i].paging(&f, b.cfg.Limit)
		}
		if err != nil {
			return nil, err
		}
		parts = append(parts, one)
	}
	if len(plain.filters) > 0 {
		parts = slices.Insert(parts, 0, plain)
	}
	return parts, nil
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
