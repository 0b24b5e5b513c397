package presence

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

// The promises of the contract.
const (
	maxSessions = 512
	maxKeys     = 500
	// wordSeconds is for how long an event of the relay about somebody is given out, as long as the status stays.
	// When many clients come back at once they ask about the same users, and a signature costs more than all else.
	wordSeconds = 5
	// reportAttempts is how often a report is tried while keys announce something themselves, as those do that have just come.
	reportAttempts = 4
)

// ReportSessions records which keys a gateway has connections of.
func (s *Service) ReportSessions(ctx context.Context, req *ingestv1.ReportSessionsRequest) (*ingestv1.ReportSessionsResponse, error) {
	gateway, err := subject.ParseGateway(req.GetGateway())
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, "malformed gateway", err)
	}
	if len(req.GetSessions()) > maxSessions {
		return nil, fault.New(fault.Invalid, fmt.Sprintf("at most %d sessions in a report", maxSessions))
	}
	sightings := make([]sighting, len(req.GetSessions()))
	for i, r := range req.GetSessions() {
		sightings[i].gone = r.GetGone()
		if sightings[i].key, err = parseKey(r.GetCommunity(), r.GetPubkey()); err != nil {
			return nil, err
		}
	}
	for attempt := 1; ; attempt++ {
		// A record must not forget what the key has announced elsewhere, nor what it announces here at this moment.
		if err := s.sync(ctx); err != nil {
			return nil, err
		}
		writes := s.records(gateway, sightings)
		switch err := s.write(ctx, writes); {
		case err == nil:
			return &ingestv1.ReportSessionsResponse{Ttl: durationpb.New(s.cfg.TTL)}, nil
		case attempt == reportAttempts || !errors.Is(err, bus.ErrRevision):
			return nil, fault.Wrap(fault.Overloaded, unknown, err)
		}
		sightings = sightings[:0]
		for _, w := range writes {
			if w.refused {
				sightings = append(sightings, sighting{key: w.key, refused: *w.after})
			}
		}
	}
}

// sighting is what a gateway says of one key.
type sighting struct {
	key  userKey
	gone bool
	// refused is the revision after which its record was not written, as it was not the last one; 0 for none.
	refused uint64
}

// records returns what a report of sessions changes in the bucket, as far as that is known.
func (s *Service) records(gateway string, sightings []sighting) []write {
	writes := make([]write, 0, len(sightings))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range sightings {
		switch {
		case !r.gone:
			status, at := s.book.status(r.key)
			after := s.book.revision(r.key, gateway)
			if after == r.refused {
				// Nothing newer has come, so it has ended in the bucket. Here it is younger, if it was read long after it was
				// written, and what the key has announced goes on.
				after = 0
			}
			writes = append(writes, write{
				key: r.key, gateway: gateway, record: &busv1.PresenceRecord{Status: status, AnnouncedAt: at}, after: &after,
			})
		case s.book.session(r.key, gateway) != nil:
			writes = append(writes, write{key: r.key, gateway: gateway})
		}
	}
	return writes
}

// GetPresence tells who of some keys is online.
func (s *Service) GetPresence(ctx context.Context, req *ingestv1.GetPresenceRequest) (*ingestv1.GetPresenceResponse, error) {
	if s.Key == nil {
		return nil, fault.New(fault.Unsupported, "this relay has no key to sign presence with")
	}
	if len(req.GetPubkeys()) > maxKeys {
		return nil, fault.New(fault.Invalid, fmt.Sprintf("presence of at most %d keys at a time", maxKeys))
	}
	keys := make([]userKey, len(req.GetPubkeys()))
	for i, p := range req.GetPubkeys() {
		var err error
		if keys[i], err = parseKey(req.GetCommunity(), p); err != nil {
			return nil, err
		}
	}
	if err := s.sync(ctx); err != nil {
		return nil, err
	}
	since := s.Now().Unix() - wordSeconds
	words := make([]word, 0, len(keys))
	seen := make(map[userKey]bool, len(keys))
	s.mu.Lock()
	for _, k := range keys {
		if status, at := s.book.status(k); isOnline(status) && !seen[k] {
			seen[k] = true
			words = append(words, word{key: k, status: status, announcedAt: at, event: s.book.said(k, since)})
		}
	}
	s.mu.Unlock()
	if err := s.signers.Acquire(ctx, 1); err != nil {
		return nil, fault.Wrap(fault.Overloaded, unknown, context.Cause(ctx))
	}
	defer s.signers.Release(1)
	resp := &ingestv1.GetPresenceResponse{}
	for _, w := range words {
		if w.event == nil {
			ev, err := s.sign(w.key, w.status, s.Now().Unix())
			if err != nil {
				return nil, fault.Internal(err)
			}
			w.event = ev.AppendJSON(nil)
			s.mu.Lock()
			s.book.say(w.key, w.announcedAt, w.event, ev.CreatedAt)
			s.mu.Unlock()
		}
		resp.Statuses = append(resp.Statuses, &ingestv1.PresenceStatus{Pubkey: w.key.pubkey[:], Event: w.event})
	}
	return resp, nil
}

// word is what is answered about a key; event is nil until it is signed.
type word struct {
	key         userKey
	status      string
	announcedAt int64
	event       []byte
}

// sign makes the relay's word about somebody, as of a moment in Unix seconds.
func (s *Service) sign(k userKey, status string, at int64) (*nostr.Event, error) {
	ev := &nostr.Event{
		Kind: nostr.KindPresence, CreatedAt: at, Content: status, Tags: nostr.Tags{{"p", k.pubkey.String()}},
	}
	if err := ev.Sign(s.Key); err != nil {
		return nil, fmt.Errorf("sign presence: %w", err)
	}
	return ev, nil
}

func parseKey(community int64, pubkey []byte) (userKey, error) {
	if community <= 0 || len(pubkey) != len(nostr.PubKey{}) {
		return userKey{}, fault.New(fault.Invalid, "malformed community or key")
	}
	return userKey{community: community, pubkey: nostr.PubKey(pubkey)}, nil
}
