package session

import (
	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
)

// planFor is plan for who reads: it also refuses filters that name a kind that is not for everybody without saying
// that the reader's own are wanted. What the reader may not see is kept back elsewhere, whatever the filters say.
func (srv *Server) planFor(p *commonv1.Principal, filters []nostr.Filter) (query, error) {
	q, err := srv.plan(filters)
	if err != nil {
		return q, err
	}
	keys := make([]nostr.PubKey, 0, len(p.GetPubkeys()))
	for _, k := range p.GetPubkeys() {
		keys = append(keys, nostr.PubKey(k))
	}
	for i := range filters {
		if why := kind.Refusal(&filters[i], keys); why != "" {
			return q, fault.New(fault.Restricted, why)
		}
	}
	return q, nil
}
