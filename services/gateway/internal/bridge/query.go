package bridge

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
)

// Query answers a POST with an array of filters: the stored events as an array, as the history of a
// REQ with these filters.
func (b *Bridge) Query(w http.ResponseWriter, r *http.Request, c session.Community) {
	b.serve(w, r, c, b.cfg.Wire.Frame, func(ctx context.Context, call call) ([]byte, error) {
		filters, err := b.filters(call.body)
		if err != nil {
			return nil, err
		}
		answer := []byte{'['}
		err = b.Sessions.Stored(ctx, c.ID, call.principal(), filters, func(raw []byte) error {
			if len(answer)+len(raw)+len(",]") > b.cfg.Answer {
				return fault.New(fault.Invalid, fmt.Sprintf(
					"the answer is larger than %d bytes: ask for less with limit, since or until", b.cfg.Answer))
			}
			if len(answer) > 1 {
				answer = append(answer, ',')
			}
			answer = append(answer, raw...)
			return nil
		})
		return append(answer, ']'), err
	})
}

// Count answers a POST with an array of filters: {"count":n}, with "hll" as in the answer to a COUNT.
func (b *Bridge) Count(w http.ResponseWriter, r *http.Request, c session.Community) {
	b.serve(w, r, c, b.cfg.Wire.Frame, func(ctx context.Context, call call) ([]byte, error) {
		filters, err := b.filters(call.body)
		if err != nil {
			return nil, err
		}
		n, hll, err := b.Sessions.Count(ctx, c.ID, call.principal(), filters)
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

// filters decodes a body by the rules of REQ.
func (b *Bridge) filters(body []byte) ([]nostr.Filter, error) {
	filters, err := wire.DecodeFilters(body, b.cfg.Wire)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, publicCause(err), err)
	}
	return filters, nil
}
