package session

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

const notAuthenticated = "not authenticated"

// newChallenge returns 32 random bytes in hexadecimal.
func newChallenge() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead (Go 1.24)
	return hex.EncodeToString(b[:])
}

// startAuthTimer closes the connection if nobody authenticates in time.
func (s *Session) startAuthTimer() {
	if s.srv.cfg.AuthTimeout <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.auth.timer = time.AfterFunc(s.srv.cfg.AuthTimeout, func() {
		if s.Principal() == nil && len(s.guests()) == 0 {
			s.conn.Close(websocket.StatusPolicyViolation, "auth-required: no answer to the challenge", metrics.OutcomeAuth)
		}
	})
}

// stopAuthTimer is called when somebody has authenticated, or nobody can any more. Called with mu held.
func (s *Session) stopAuthTimer() {
	if s.auth.timer != nil {
		s.auth.timer.Stop()
		s.auth.timer = nil // and its memory
	}
}

// authenticate handles AUTH. Several keys may authenticate one after the other; subscriptions keep the
// principal they were opened with. A failed attempt is final for the socket: it gets no second guess. A key that
// is no member of a closed community is a guest, and may authenticate again when it has become one.
func (s *Session) authenticate(f *wire.Frame) {
	start := time.Now()
	refuse := func(reason fault.Reason, msg string) { s.answer(f.EventID, reason, msg, start) }
	if s.auth.failed {
		refuse(fault.AuthRequired, "authentication already failed")
		return
	}
	ev, err := s.decodeEvent(f)
	if s.ctx.Err() != nil {
		return // nobody is left to answer
	}
	if err == nil {
		err = auth.CheckAuthEvent(ev, s.auth.challenge, *s.hosts.Load(), start, s.srv.cfg.AuthWindow)
	}
	if err != nil {
		s.auth.failed = true
		s.client.Offend(start)
		s.srv.Log.LogAttrs(s.ctx, slog.LevelDebug, "authentication failed",
			slog.Uint64(telemetry.KeyConn, s.id), slog.Any(telemetry.KeyError, err))
		refuse(fault.AuthRequired, "verification failed: "+publicCause(err))
		return
	}
	var keys [][]byte
	if p := s.Principal(); p != nil {
		keys = p.GetPubkeys()
	}
	known := slices.ContainsFunc(keys, func(k []byte) bool { return string(k) == string(ev.PubKey[:]) })
	switch {
	case known:
		refuse(fault.Accepted, "")
		return
	case len(keys)+len(s.guests()) >= s.srv.cfg.MaxKeys && !slices.Contains(s.guests(), ev.PubKey), s.auth.asked >= maxGuestQuestions:
		refuse(fault.Restricted, "too many keys on this connection")
		return
	}
	attestation, mark := attested(ev), s.srv.Told.Now()
	owner, err := s.admitAttested(ev.PubKey, attestation)
	if err != nil {
		if attestation == nil && s.community.hasGuests(err) { // agents come with their owner, not with an invite code
			s.auth.asked++
			s.addGuest(ev.PubKey)
			s.ok(f.EventID, fault.Accepted, "")
			return
		}
		// An outage is not the client's failure: it may try again while its time lasts.
		reason := fault.ReasonOf(err)
		s.auth.failed = reason == fault.Restricted || reason == fault.Blocked
		refuse(reason, fault.Message(err))
		if reason == fault.Blocked && s.Principal() == nil {
			s.conn.Close(websocket.StatusPolicyViolation, fault.Frame(ErrBanned), metrics.OutcomeAuth)
		}
		return
	}
	s.admit(ev.PubKey, owner)
	s.DoubtSince(mark)
	s.ok(f.EventID, fault.Accepted, "")
}

// admitAttested is Server.AdmitAttested, in the time of one call: it does not end with the connection, which would keep the room
// for a context of its own as long as it lives.
func (s *Session) admitAttested(key nostr.PubKey, attestation *auth.Attestation) (owner nostr.PubKey, err error) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(s.ctx), s.srv.cfg.CallTimeout, fault.New(fault.Overloaded, ""))
	defer cancel()
	return s.srv.AdmitAttested(ctx, *s.community, s.client, key, attestation)
}

// DoubtSince has the session looked at again if something was told of its community since a mark (package told): it may
// be about who was let in meanwhile.
func (s *Session) DoubtSince(mark uint64) {
	if s.srv.Told.Since(s.community.ID, mark) {
		s.srv.Doubt(s)
	}
}

// publicCause returns what may be said of a failed authentication; the errors of wire and auth are
// public texts.
func publicCause(err error) string {
	var de *wire.DecodeError
	if errors.As(err, &de) {
		return de.Msg
	}
	return err.Error()
}

// maxAdmissions is how many keys are asked about at a time. When everybody comes back at once the others wait
// for a moment; search would refuse what is too much for it, and live delivery asks it too.
const maxAdmissions = 8

// Admit asks whether a key may use the community: in a closed one it must be that of a member or a member's agent, in any
// it must not be banned. The error is Restricted if it may not and ErrBanned if it is banned; any other says that this is not
// known now. owner is whose agent the key is, as far as that is known, and zero if it is nobody's.
func (srv *Server) Admit(ctx context.Context, c Community, key nostr.PubKey) (owner nostr.PubKey, err error) {
	return srv.admitSince(ctx, c, key, srv.Told.Version(c.ID))
}

// admitSince is Admit by a state that is at least as new as a version.
func (srv *Server) admitSince(ctx context.Context, c Community, key nostr.PubKey, version uint64) (owner nostr.PubKey, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, srv.cfg.CallTimeout, fault.New(fault.Overloaded, ""))
	defer cancel()
	if err := srv.admissions.Acquire(ctx, 1); err != nil {
		return owner, context.Cause(ctx)
	}
	defer srv.admissions.Release(1)
	resp, err := srv.Search.CheckAccess(ctx, &searchv1.CheckAccessRequest{
		Community: c.ID, Pubkeys: [][]byte{key[:]}, MinCommunityAclVersion: version,
	})
	if err != nil {
		return owner, err
	}
	for _, agent := range resp.GetAgents() {
		copy(owner[:], agent.GetOwner())
	}
	switch {
	case len(resp.GetBanned()) > 0:
		return owner, ErrBanned
	case len(resp.GetAllowed()) != 1 || !resp.GetAllowed()[0]:
		return owner, ErrNotMember
	}
	return owner, nil
}

// What a key is told that may not use the community: it is banned from it, or no member of one that is closed. Whether
// it is closed is not asked: what the gateway remembers of that may be a few seconds old.
var (
	ErrBanned    = fault.New(fault.Blocked, "you are banned from this community")
	ErrNotMember = fault.New(fault.Restricted, "not a relay member")
)

// lost is what a subscription is told whose key may not use the community any more.
func (c *Community) lost() error {
	if c.Closed {
		return ErrNotMember
	}
	return ErrBanned
}
