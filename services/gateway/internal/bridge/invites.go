package bridge

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/apiary-relay/apiary/pkg/fault"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
)

// maxInviteBody is the size of the largest body about invites.
const maxInviteBody = 4 << 10

// MintInvite answers a POST of {"ttl_secs"?, "max_uses"?} with a code by which others may become members:
// {"code", "expires_at", "max_uses", "uses_remaining", "url"}, times in Unix seconds, the uses null where they are
// not counted.
func (b *Bridge) MintInvite(w http.ResponseWriter, r *http.Request, c session.Community) {
	b.serve(w, r, c, maxInviteBody, func(ctx context.Context, call call) ([]byte, error) {
		var wish struct {
			TTL     *int64  `json:"ttl_secs"`
			MaxUses *uint32 `json:"max_uses"`
		}
		if err := decode(call.body, &wish); err != nil {
			return nil, err
		}
		request := &ingestv1.MintInviteRequest{Community: c.ID, Actor: call.key[:]}
		if wish.TTL != nil {
			request.Life = &durationpb.Duration{Seconds: *wish.TTL}
		}
		if wish.MaxUses != nil {
			if *wish.MaxUses == 0 {
				return nil, fault.New(fault.Invalid, "max_uses must be at least 1")
			}
			request.MaxUses = *wish.MaxUses
		}
		if err := b.Sessions.Attempt(call.key); err != nil {
			return nil, err
		}
		invite, err := b.Invites.MintInvite(ctx, request)
		if err != nil {
			return nil, err
		}
		return json.Marshal(struct {
			Code          string  `json:"code"`
			ExpiresAt     int64   `json:"expires_at"`
			MaxUses       *uint32 `json:"max_uses"`
			UsesRemaining *uint32 `json:"uses_remaining"`
			URL           string  `json:"url"`
		}{
			invite.GetCode(), invite.GetExpiresAt().AsTime().Truncate(time.Second).Unix(), wish.MaxUses, wish.MaxUses,
			call.origin + "/invite/" + url.PathEscape(invite.GetCode()),
		})
	})
}

// ClaimInvite answers a POST of {"code", "policy_receipt"?} by whoever has a key: {"status", "community_id", "host", "role"}, where
// status is joined or already_member.
func (b *Bridge) ClaimInvite(w http.ResponseWriter, r *http.Request, c session.Community) {
	anybody := func(_ context.Context, call *call) error { return b.Sessions.Claim(call.key, call.client) }
	b.serveIf(w, r, c, maxInviteBody, anybody, func(ctx context.Context, call call) ([]byte, error) {
		var claim struct {
			Code    string `json:"code"`
			Receipt string `json:"policy_receipt"`
		}
		if err := decode(call.body, &claim); err != nil {
			return nil, err
		}
		resp, err := b.Invites.ClaimInvite(ctx, &ingestv1.ClaimInviteRequest{
			Community: c.ID, Pubkey: call.key[:], Code: claim.Code, PolicyReceipt: claim.Receipt,
		})
		if err != nil {
			return nil, err
		}
		status := "joined"
		switch resp.GetOutcome() {
		case ingestv1.ClaimOutcome_CLAIM_OUTCOME_JOINED:
		case ingestv1.ClaimOutcome_CLAIM_OUTCOME_ALREADY_MEMBER:
			status = "already_member"
		case ingestv1.ClaimOutcome_CLAIM_OUTCOME_EXPIRED:
			return nil, fault.New(fault.Restricted, "invite_expired")
		case ingestv1.ClaimOutcome_CLAIM_OUTCOME_USED_UP:
			return nil, fault.New(fault.Restricted, "invite_exhausted")
		case ingestv1.ClaimOutcome_CLAIM_OUTCOME_POLICY_REQUIRED:
			return nil, fault.New(fault.Restricted, "join_policy_required")
		default:
			return nil, fault.New(fault.Restricted, "invite_invalid")
		}
		origin, err := url.Parse(call.origin)
		if err != nil {
			return nil, fault.Internal(err)
		}
		return json.Marshal(struct {
			Status      string `json:"status"`
			CommunityID string `json:"community_id"`
			Host        string `json:"host"`
			Role        string `json:"role"`
		}{status, c.UUID, origin.Host, resp.GetRole()})
	})
}
