package search

import (
	"fmt"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	"github.com/apiary-relay/apiary/pkg/tenant"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/search/internal/access"
	"github.com/apiary-relay/apiary/services/search/internal/plan"
)

// Bounds of a request. Gateways keep to tighter ones; these keep a faulty caller from harming the rest.
const (
	maxFilters    = 10
	maxPrincipal  = 16
	maxValues     = 10_000 // ids, authors, kinds and tag values of all filters together
	maxAccessKeys = 4096
	maxPaged      = 5000 // events passed over and returned, of one filter
)

// filtersRequest is a request with filters.
type filtersRequest interface {
	GetCommunity() int64
	GetPrincipal() *commonv1.Principal
	GetFilters() []*commonv1.Filter
}

// readRequest checks a request. An error is Invalid and says what is wrong.
func (s *Service) readRequest(req filtersRequest) (access.Reader, []*nostr.Filter, error) {
	bad := func(err error) (access.Reader, []*nostr.Filter, error) {
		return access.Reader{}, nil, fault.Wrap(fault.Invalid, err.Error(), err)
	}
	if req.GetCommunity() <= 0 {
		return bad(fmt.Errorf("community %d", req.GetCommunity()))
	}
	keys, err := parseKeys(req.GetPrincipal().GetPubkeys(), maxPrincipal)
	if err != nil {
		return bad(fmt.Errorf("principal: %w", err))
	}
	if n := len(req.GetFilters()); n == 0 || n > maxFilters {
		return bad(fmt.Errorf("%d filters, want 1 to %d", n, maxFilters))
	}
	filters := make([]*nostr.Filter, len(req.GetFilters()))
	values := 0
	for i, m := range req.GetFilters() {
		if filters[i], err = nostrpb.FilterFromProto(m); err != nil {
			return bad(fmt.Errorf("filter %d: %w", i, err))
		}
		values += countValues(filters[i])
	}
	if values > maxValues {
		return bad(fmt.Errorf("%d values in filters, at most %d", values, maxValues))
	}
	return access.Reader{
		Community: tenant.ID(req.GetCommunity()), Keys: keys, Now: s.now().Unix(),
	}, filters, nil
}

func countValues(f *nostr.Filter) int {
	n := len(f.IDs) + len(f.Authors) + len(f.Kinds)
	for _, c := range f.Tags {
		n += len(c.Values)
	}
	return n
}

// parseKeys reads public keys of 32 bytes, at most limit.
func parseKeys(list [][]byte, limit int) ([]nostr.PubKey, error) {
	if len(list) > limit {
		return nil, fmt.Errorf("%d keys, at most %d", len(list), limit)
	}
	keys := make([]nostr.PubKey, len(list))
	for i, b := range list {
		if len(b) != len(keys[i]) {
			return nil, fmt.Errorf("key of %d bytes", len(b))
		}
		keys[i] = nostr.PubKey(b)
	}
	return keys, nil
}

// readPaging checks which pages a request wants. An error is Invalid and says what is wrong.
func readPaging(list []*searchv1.Paging, filters []*nostr.Filter) ([]plan.Page, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if len(list) != len(filters) {
		return nil, fault.New(fault.Invalid, fmt.Sprintf("%d pages of %d filters", len(list), len(filters)))
	}
	pages := make([]plan.Page, len(list))
	for i, m := range list {
		f := filters[i]
		switch after := m.GetAfterId(); {
		case len(after) != 0 && len(after) != len(nostr.ID{}):
			return nil, fault.New(fault.Invalid, fmt.Sprintf("filter %d: after an id of %d bytes", i, len(after)))
		case len(after) != 0 && (f.Until == nil || f.Search != ""):
			return nil, fault.New(fault.Invalid, fmt.Sprintf("filter %d: after an id without until, or with a search", i))
		case m.GetOffset() > maxPaged || (f.Limit != nil && int(m.GetOffset())+*f.Limit > maxPaged):
			return nil, fault.New(fault.Invalid, fmt.Sprintf("filter %d: more than %d events", i, maxPaged))
		}
		if channels, _ := f.Tag('h'); m.GetTopLevel() && (len(channels) != 1 || f.Search != "") {
			return nil, fault.New(fault.Invalid, fmt.Sprintf("filter %d: top level of %d channels, or with a search", i, len(channels)))
		}
		pages[i] = plan.Page{After: m.GetAfterId(), Offset: int(m.GetOffset()), Top: m.GetTopLevel(), Prefix: m.GetPrefix()}
	}
	return pages, nil
}
