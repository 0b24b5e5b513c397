package search

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/tenant"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// maxName is the longest name of NIP-05, in bytes.
const maxName = 64

// ResolveName implements searchv1.SearchServiceServer. Where several members claim a name it belongs to who has been a
// member for longest: whoever comes later takes nobody's name.
func (s *Service) ResolveName(ctx context.Context, req *searchv1.ResolveNameRequest) (resp *searchv1.ResolveNameResponse, err error) {
	end, err := s.admit(ctx, callResolve)
	if err != nil {
		return nil, err
	}
	defer func() { end(err) }()
	if req.GetCommunity() <= 0 || !isName(req.GetName()) {
		return nil, fault.New(fault.Invalid, fmt.Sprintf("no name of community %d", req.GetCommunity()))
	}
	raws, err := s.store.Profiles(ctx, tenant.ID(req.GetCommunity()), req.GetName()+"@"+req.GetHost(), s.now().Unix())
	if err != nil {
		return nil, err
	}
	for _, raw := range raws {
		profile, err := wire.DecodeEvent(raw, wire.Limits{})
		if err != nil {
			return nil, fmt.Errorf("decode stored profile: %w", err)
		}
		if claims(profile, req.GetName(), req.GetHost()) {
			return &searchv1.ResolveNameResponse{Pubkey: profile.PubKey[:]}, nil
		}
	}
	return nil, fault.New(fault.NotFound, "")
}

// isName reports whether text is a name in lower case.
func isName(text string) bool {
	return text != "" && len(text) <= maxName && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
}

// claims reports whether a profile says that its author has a name at a host.
func claims(profile *nostr.Event, name, host string) bool {
	var content struct {
		NIP05 string `json:"nip05"`
	}
	if json.Unmarshal([]byte(profile.Content), &content) != nil {
		return false
	}
	local, domain, ok := strings.Cut(content.NIP05, "@")
	if !ok || strings.ToLower(local) != name {
		return false
	}
	domain, err := tenant.NormalizeHost(domain)
	return err == nil && domain == host
}
