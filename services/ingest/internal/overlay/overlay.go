// Package overlay signs what the relay makes up for one answer: summaries of threads and bounds of pages.
//
// It owns which kinds may be signed at the wish of a gateway, and signs no other: every other event of the relay comes
// from ingest's own transactions. It must never store or publish anything. There are no goroutines.
package overlay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

// Bounds of a request.
const (
	maxOverlays = 256
	maxTags     = 8
	maxContent  = 16 << 10
)

// kinds are those that may be signed. Nothing of them is ever stored.
var kinds = []uint32{uint32(nostr.KindThreadSummary), uint32(nostr.KindWindowBounds), uint32(nostr.KindThreadBounds)}

// Service signs overlays.
type Service struct {
	ingestv1.UnimplementedOverlayServiceServer

	key *nostr.SecretKey
	now func() time.Time
}

// New returns a service that signs with key, which is nil where the relay has none.
func New(key *nostr.SecretKey, now func() time.Time) *Service { return &Service{key: key, now: now} }

// SignOverlays implements ingestv1.OverlayServiceServer.
func (s *Service) SignOverlays(ctx context.Context, req *ingestv1.SignOverlaysRequest) (*ingestv1.SignOverlaysResponse, error) {
	if s.key == nil {
		return nil, fault.New(fault.Restricted, "this relay has no key to sign with")
	}
	if n := len(req.GetOverlays()); n > maxOverlays {
		return nil, fault.New(fault.Invalid, fmt.Sprintf("%d overlays, at most %d", n, maxOverlays))
	}
	resp := &ingestv1.SignOverlaysResponse{}
	for _, o := range req.GetOverlays() {
		if err := ctx.Err(); err != nil {
			return nil, err // nobody waits for the others
		}
		ev, err := eventOf(o)
		if err != nil {
			return nil, err
		}
		ev.CreatedAt = max(s.now().Unix(), o.GetLeastCreatedAt())
		if err := ev.Sign(s.key); err != nil {
			return nil, fmt.Errorf("sign overlay: %w", err)
		}
		resp.Events = append(resp.Events, ev.AppendJSON(nil))
	}
	return resp, nil
}

// eventOf returns the event to sign.
func eventOf(o *ingestv1.Overlay) (*nostr.Event, error) {
	ev := &nostr.Event{Kind: nostr.Kind(o.GetKind()), Content: o.GetContent()}
	switch {
	case !slices.Contains(kinds, o.GetKind()):
		return nil, fault.New(fault.Invalid, fmt.Sprintf("kind %d is no overlay", o.GetKind()))
	case len(o.GetTags()) > maxTags:
		return nil, fault.New(fault.Invalid, fmt.Sprintf("%d tags, at most %d", len(o.GetTags()), maxTags))
	case len(o.GetContent()) > maxContent:
		return nil, fault.New(fault.Invalid, fmt.Sprintf("content of %d bytes, at most %d", len(o.GetContent()), maxContent))
	}
	for _, t := range o.GetTags() {
		ev.Tags = append(ev.Tags, t.GetValues())
	}
	return ev, nil
}
