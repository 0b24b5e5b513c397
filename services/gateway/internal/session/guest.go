package session

import (
	"bytes"
	"slices"
	"time"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

// Guests are keys that have authenticated and are not members of their closed community. They are no part of the
// principal: they may ask to join with an invite code (NIP-43), and nothing else.

const (
	// guestTime is how long a connection may stay on which nobody but guests has authenticated.
	guestTime = time.Minute
	// maxGuestQuestions is how often search is asked about guests of one connection.
	maxGuestQuestions = 32
)

// hasGuests reports whether a key that Admit has refused with err may ask to join.
func (c *Community) hasGuests(err error) bool {
	return c.Closed && fault.ReasonOf(err) == fault.Restricted
}

// addGuest remembers a key that may not use the community. The first one starts the time of the connection.
func (s *Session) addGuest(key nostr.PubKey) {
	s.mu.Lock()
	first := len(s.auth.guests) == 0
	if !slices.Contains(s.auth.guests, key) {
		s.auth.guests = append(s.auth.guests, key)
	}
	s.mu.Unlock()
	if !first || s.srv.cfg.AuthTimeout <= 0 {
		return
	}
	time.AfterFunc(guestTime, func() {
		if s.Principal() == nil {
			s.conn.Close(websocket.StatusPolicyViolation, fault.Frame(ErrNotMember), metrics.OutcomeAuth)
		}
	})
}

// guests returns the keys that have authenticated and may not use the community.
func (s *Session) guests() []nostr.PubKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.auth.guests)
}

// admit makes a key part of the principal, unless it is; owner is whose agent it is, zero if it is nobody's.
// Subscriptions keep the principal they were opened with.
func (s *Session) admit(key, owner nostr.PubKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owned(key, owner)
	s.auth.guests = slices.DeleteFunc(s.auth.guests, func(k nostr.PubKey) bool { return k == key })
	keys := s.Principal().GetPubkeys()
	s.stopAuthTimer()
	if !slices.ContainsFunc(keys, func(k []byte) bool { return string(k) == string(key[:]) }) {
		// A copy: the principal is never changed.
		s.auth.principal.Store(&commonv1.Principal{Pubkeys: append(slices.Clip(keys), bytes.Clone(key[:]))})
		if !s.left {
			s.srv.Roster.Join(s.community.ID, key)
		}
	}
}

// stranger is what is answered to who asks without a principal.
func (s *Session) stranger() *fault.Error {
	if len(s.guests()) > 0 {
		return ErrNotMember
	}
	return fault.New(fault.AuthRequired, notAuthenticated)
}

// joining returns the principal for a guest's request to join, and what to do when it was granted: the key is a
// member then. Of other events it returns the principal as it is.
func (s *Session) joining(f *wire.Frame) (p *commonv1.Principal, joined func(fault.Reason)) {
	p, guests := s.Principal(), s.guests()
	if len(guests) == 0 {
		return p, nil
	}
	ev, err := s.decodeEvent(f)
	if err != nil || ev.Kind != nostr.KindRelayJoinRequest || !slices.Contains(guests, ev.PubKey) {
		return p, nil
	}
	key := nostr.PubKey(bytes.Clone(ev.PubKey[:])) // the event need not live as long as the connection
	mark := s.srv.Told.Now()
	return &commonv1.Principal{Pubkeys: [][]byte{bytes.Clone(key[:])}}, func(reason fault.Reason) {
		if fault.Succeeded(reason) {
			s.admit(key, nostr.PubKey{})
			s.DoubtSince(mark)
		}
	}
}
