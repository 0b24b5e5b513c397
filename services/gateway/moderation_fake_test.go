package gateway_test

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/fault"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// moderation remembers tokens as ingest does, and what it was asked to change.
type moderation struct {
	ingestv1.UnimplementedModerationServiceServer

	mu      sync.Mutex
	down    bool
	err     error // of Moderate
	tokens  map[string]*ingestv1.ConsumeTokenRequest
	changes []*ingestv1.ModerateRequest

	admittedBy []byte
}

func (m *moderation) Moderate(_ context.Context, req *ingestv1.ModerateRequest) (*ingestv1.ModerateResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, m.err
	}
	m.changes = append(m.changes, proto.CloneOf(req))
	return &ingestv1.ModerateResponse{AdmittedBy: m.admittedBy}, nil
}

func (m *moderation) ConsumeToken(_ context.Context, req *ingestv1.ConsumeTokenRequest) (*ingestv1.ConsumeTokenResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return nil, fault.New(fault.Overloaded, "")
	}
	id := string(req.GetEventId())
	if m.tokens[id] != nil {
		return nil, fault.New(fault.Restricted, "")
	}
	if m.tokens == nil {
		m.tokens = make(map[string]*ingestv1.ConsumeTokenRequest)
	}
	m.tokens[id] = proto.CloneOf(req)
	return &ingestv1.ConsumeTokenResponse{}, nil
}

// set changes the fake under its lock.
func (m *moderation) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// take returns what was changed since the last time.
func (m *moderation) take() []*ingestv1.ModerateRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.changes
	m.changes = nil
	return all
}

// ListModeration answers from the test's lists.
func (s *search) ListModeration(_ context.Context, req *searchv1.ListModerationRequest) (*searchv1.ListModerationResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.onList == nil {
		return nil, fault.New(fault.Restricted, "")
	}
	return &searchv1.ListModerationResponse{Entries: s.onList(req)}, nil
}
