package session

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/admit"
	"github.com/apiary-relay/apiary/services/gateway/internal/submit"
)

// MayPublish reports whether a key may submit an event over HTTP, as a fault if not: what an EVENT on a connection is
// answered on which the key has authenticated, and besides that there are kinds for connections only. Whether the event
// itself is acceptable is for ingest to say. a is as in AdmitAttested.
func (srv *Server) MayPublish(
	ctx context.Context, c Community, client *admit.Client, key nostr.PubKey, a *auth.Attestation, ev *nostr.Event,
) error {
	owner, err := srv.AdmitAttested(ctx, c, client, key, a)
	if err != nil {
		if a == nil && c.hasGuests(err) && ev.Kind == nostr.KindRelayJoinRequest && ev.PubKey == key {
			return srv.Claim(key, client)
		}
		return err
	}
	if kind.Of(ev.Kind).Sender == kind.Socket {
		return fault.New(fault.Invalid, fmt.Sprintf("kind %d is only accepted via WebSocket", ev.Kind))
	}
	if !owner.IsZero() && ev.PubKey == key {
		if wait, ok := publishAsAgent(client, admit.Agent{Community: c.ID, Key: key, Owner: owner}, ev.Kind, time.Now()); !ok {
			return QuotaExceeded(wait)
		}
	}
	return nil
}

// Publish submits an event over HTTP for a key that may (MayPublish), the same way as an EVENT, and waits for the verdict.
// When ctx ends before, the event may be accepted all the same.
func (srv *Server) Publish(ctx context.Context, c Community, key nostr.PubKey, id nostr.ID, raw []byte) submit.Verdict {
	start := time.Now()
	verdicts := make(chan submit.Verdict, 1)
	p := &commonv1.Principal{Pubkeys: [][]byte{key[:]}}
	err := srv.submit(ctx, binary.BigEndian.Uint64(key[:]), c.ID, p, id, raw, func(v submit.Verdict) { verdicts <- v })
	if err == nil {
		select {
		case v := <-verdicts:
			srv.Metrics.OK(ctx, v.Reason, time.Since(start).Seconds())
			return v
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	v := submit.Verdict{Reason: fault.ReasonOf(err)}
	srv.Metrics.OK(ctx, v.Reason, time.Since(start).Seconds())
	return v
}
