package bridge

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
)

// clockMargin is by how much longer than it is accepted a token is remembered, because the clocks of
// gateways and of the database differ.
const clockMargin = 60 * time.Second

// authenticate returns the call that a key has signed (NIP-98) and may make, and uses its proof up. The proof must cover
// the body, as NIP-86 demands: else whoever sees it could put another body under it.
func (b *Bridge) authenticate(ctx context.Context, r *http.Request, c session.Community, body []byte, may gate) (call, error) {
	sum := sha256.Sum256(body)
	ev, err := auth.CheckHTTPAuth(r.Header.Get("Authorization"), r.Method, r.RequestURI, sum[:], c.Hosts, time.Now())
	if err == nil && !auth.SignsBody(ev) && (r.Method != http.MethodGet || len(body) > 0) {
		err = auth.ErrPayload
	}
	if err != nil {
		return call{}, fault.Wrap(fault.AuthRequired, publicCause(err), err)
	}
	made := call{
		community: c, key: ev.PubKey, attestation: attested(r, ev), client: b.Gate.Client(b.Addr(r), time.Now()), origin: originOf(ev), body: body,
	}
	if err := may(ctx, &made); err != nil {
		return call{}, err
	}
	if err := b.consume(ctx, c.ID, ev); err != nil {
		return call{}, err
	}
	return made, nil
}

// attestationHeader carries an attestation for a proof that does not (NIP-OA): the tag as a JSON array. The proof does not
// cover it, and need not: it holds for the key that signs the proof, whoever has put it there.
const attestationHeader = "X-Auth-Tag"

// attested returns what a request attests of the key that signs it, nil if that is nothing, or does not hold now.
// An attestation that is not valid counts as none.
func attested(r *http.Request, proof *nostr.Event) *auth.Attestation {
	a, err := auth.Attested(proof)
	if headers := r.Header.Values(attestationHeader); proof.Tags.Count(auth.AttestationTag) == 0 && len(headers) == 1 {
		a, err = auth.DecodeAttestation(headers[0], proof.PubKey)
	}
	if err != nil || !a.Covers(proof.CreatedAt) {
		return nil
	}
	return &a
}

// originOf returns the scheme and the host of the URL that a proof names, by which the client knows this relay. They
// were compared with those of the community.
func originOf(proof *nostr.Event) string {
	text, _ := proof.Tags.First("u")
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// consume makes sure that no gateway has accepted the token before, and that none will.
func (b *Bridge) consume(ctx context.Context, community int64, ev *nostr.Event) error {
	expires := time.Unix(ev.CreatedAt, 0).Add(auth.HTTPWindow + clockMargin)
	_, err := b.Moderation.ConsumeToken(ctx, &ingestv1.ConsumeTokenRequest{
		Community: community, EventId: ev.ID[:], ExpiresAt: timestamppb.New(expires),
	})
	switch fault.ReasonOf(err) {
	case fault.Accepted, fault.Cancelled:
		return err
	case fault.Restricted:
		return fault.New(fault.AuthRequired, "this authentication event was used before")
	default:
		// Whatever it is, the token may have been used: nothing is done on it.
		return fault.Wrap(fault.Overloaded, "", err)
	}
}

// publicCause returns what may be said of a proof that fails; the errors of wire and auth are public texts.
func publicCause(err error) string {
	var de *wire.DecodeError
	if errors.As(err, &de) {
		return de.Msg
	}
	return err.Error()
}
