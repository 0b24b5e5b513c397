package session

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
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
func (s *Session) startAuthTimer() (stop func()) {
	if s.srv.cfg.AuthTimeout <= 0 {
		return func() {}
	}
	t := time.AfterFunc(s.srv.cfg.AuthTimeout, func() {
		if s.Principal() == nil {
			s.conn.Close(websocket.StatusPolicyViolation, "auth-required: no answer to the challenge", metrics.OutcomeAuth)
		}
	})
	return func() { t.Stop() }
}

// authenticate handles AUTH. Several keys may authenticate one after the other; subscriptions keep the
// principal they were opened with. A failed attempt is final for the socket: it gets no second guess.
func (s *Session) authenticate(f *wire.Frame) {
	start := time.Now()
	refuse := func(reason fault.Reason, msg string) { s.answer(f.EventID, reason, msg, start) }
	if s.auth.failed {
		refuse(fault.AuthRequired, "authentication already failed")
		return
	}
	ev, err := wire.DecodeEvent(f.RawEvent, s.srv.cfg.Wire)
	if err == nil {
		err = auth.CheckAuthEvent(ev, s.auth.challenge, s.community.Hosts, start, s.srv.cfg.AuthWindow)
	}
	if err != nil {
		s.auth.failed = true
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
	case len(keys) >= s.srv.cfg.MaxKeys:
		refuse(fault.Restricted, "too many keys on this connection")
		return
	}
	if s.community.Closed {
		allowed, err := s.mayRead(ev.PubKey[:])
		switch {
		case err != nil:
			// Not the client's failure: it may try again while its time lasts.
			refuse(fault.ReasonOf(err), fault.Message(err))
			return
		case !allowed:
			s.auth.failed = true
			refuse(fault.Restricted, "not a relay member")
			return
		}
	}
	// A copy: the key lives as long as the connection, the event need not.
	s.auth.principal.Store(&commonv1.Principal{Pubkeys: append(slices.Clip(keys), bytes.Clone(ev.PubKey[:]))})
	s.ok(f.EventID, fault.Accepted, "")
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

// mayRead asks whether a key may read the community's global topic.
func (s *Session) mayRead(pubkey []byte) (bool, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.srv.cfg.CallTimeout)
	defer cancel()
	resp, err := s.srv.Search.CheckAccess(ctx, &searchv1.CheckAccessRequest{
		Community: s.community.ID, Pubkeys: [][]byte{pubkey},
	})
	if err != nil {
		return false, err
	}
	return len(resp.GetAllowed()) == 1 && resp.GetAllowed()[0], nil
}
