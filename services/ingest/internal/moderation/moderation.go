// Package moderation serves what owners and admins change in their community (NIP-86), and guards HTTP
// authentication against replay (NIP-98). It owns the checks of what is asked for; the store owns what is done,
// who may do it, and the order against the batches that are being committed.
//
// A Service has no state and is safe for concurrent use.
package moderation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

// Bounds of what a change may carry, in bytes and bits.
const (
	maxReason      = 1024
	maxName        = 256
	maxDescription = 4096
	maxIcon        = 2048
	maxPow         = 64
)

// maxTokenLife bounds how long a token is remembered.
const maxTokenLife = time.Hour

// Store is what moderation is kept in; *store.Store does.
type Store interface {
	Moderate(ctx context.Context, m store.Moderator, change store.Change) (store.Moderated, error)
	ConsumeToken(ctx context.Context, community int64, id nostr.ID, expires time.Time) error
}

// Service implements ingestv1.ModerationServiceServer.
type Service struct {
	ingestv1.UnimplementedModerationServiceServer
	store Store
	now   func() time.Time
}

// New returns a service on the store. now is the clock that expiry is compared with.
func New(s Store, now func() time.Time) *Service { return &Service{store: s, now: now} }

// Moderate makes one change.
func (s *Service) Moderate(ctx context.Context, req *ingestv1.ModerateRequest) (*ingestv1.ModerateResponse, error) {
	actor, err := nostrpb.Fixed[nostr.PubKey](req.GetActor(), "actor")
	if err != nil {
		return nil, err
	}
	if err := checkText(req.GetReason(), "reason", maxReason); err != nil {
		return nil, err
	}
	change, err := parse(req)
	if err != nil {
		return nil, err
	}
	m := store.Moderator{Community: req.GetCommunity(), Actor: actor, Reason: req.GetReason()}
	done, err := s.store.Moderate(ctx, m, change)
	if err != nil {
		return nil, failed(err)
	}
	resp := &ingestv1.ModerateResponse{AclVersion: done.ACLVersion}
	if done.AdmittedBy != nil {
		resp.AdmittedBy = done.AdmittedBy[:]
	}
	return resp, nil
}

// ConsumeToken remembers a token until it expires.
func (s *Service) ConsumeToken(ctx context.Context, req *ingestv1.ConsumeTokenRequest) (*ingestv1.ConsumeTokenResponse, error) {
	id, err := nostrpb.Fixed[nostr.ID](req.GetEventId(), "event_id")
	if err != nil {
		return nil, err
	}
	expires := req.GetExpiresAt()
	if !expires.IsValid() || expires.AsTime().After(s.now().Add(maxTokenLife)) {
		return nil, fault.New(fault.Invalid, "expires_at must be within an hour")
	}
	if err := s.store.ConsumeToken(ctx, req.GetCommunity(), id, expires.AsTime()); err != nil {
		return nil, failed(err)
	}
	return &ingestv1.ConsumeTokenResponse{}, nil
}

// parse checks what is asked for.
func parse(req *ingestv1.ModerateRequest) (store.Change, error) {
	switch c := req.GetChange().(type) {
	case *ingestv1.ModerateRequest_BanPubkey:
		return ofKey(c.BanPubkey, "ban_pubkey", store.BanPubKey)
	case *ingestv1.ModerateRequest_UnbanPubkey:
		return ofKey(c.UnbanPubkey, "unban_pubkey", store.UnbanPubKey)
	case *ingestv1.ModerateRequest_AllowPubkey:
		return ofKey(c.AllowPubkey, "allow_pubkey", store.AllowPubKey)
	case *ingestv1.ModerateRequest_UnallowPubkey:
		return ofKey(c.UnallowPubkey, "unallow_pubkey", store.UnallowPubKey)
	case *ingestv1.ModerateRequest_BanEvent:
		return ofKey(c.BanEvent, "ban_event", store.BanEvent)
	case *ingestv1.ModerateRequest_AllowEvent:
		return ofKey(c.AllowEvent, "allow_event", store.AllowEvent)
	case *ingestv1.ModerateRequest_AllowKind:
		return ofKind(c.AllowKind, store.AllowKind)
	case *ingestv1.ModerateRequest_DisallowKind:
		return ofKind(c.DisallowKind, store.DisallowKind)
	case *ingestv1.ModerateRequest_BlockIp:
		return ofNetwork(c.BlockIp, store.BlockNetwork)
	case *ingestv1.ModerateRequest_UnblockIp:
		return ofNetwork(c.UnblockIp, store.UnblockNetwork)
	}
	d, err := parseDescription(req)
	if err != nil {
		return store.Change{}, err
	}
	return store.Describe(d), nil
}

func parseDescription(req *ingestv1.ModerateRequest) (d store.Description, err error) {
	switch c := req.GetChange().(type) {
	case *ingestv1.ModerateRequest_Name:
		d.Name, err = &c.Name, checkText(c.Name, "name", maxName)
	case *ingestv1.ModerateRequest_Description:
		d.About, err = &c.Description, checkText(c.Description, "description", maxDescription)
	case *ingestv1.ModerateRequest_Icon:
		d.Icon, err = &c.Icon, checkIcon(c.Icon)
	case *ingestv1.ModerateRequest_MinPow:
		if c.MinPow > maxPow {
			return d, fault.New(fault.Invalid, fmt.Sprintf("min_pow must be at most %d bits", maxPow))
		}
		d.MinPow = new(int16(c.MinPow))
	default:
		return d, fault.New(fault.Invalid, "no change")
	}
	return d, err
}

func ofKey[K ~[32]byte](b []byte, field string, change func(K) store.Change) (store.Change, error) {
	k, err := nostrpb.Fixed[K](b, field)
	if err != nil {
		return store.Change{}, err
	}
	return change(k), nil
}

func ofKind(kind uint32, change func(nostr.Kind) store.Change) (store.Change, error) {
	if kind > 65535 {
		return store.Change{}, fault.New(fault.Invalid, "kind must be at most 65535")
	}
	return change(nostr.Kind(kind)), nil
}

func ofNetwork(text string, change func(netip.Prefix) store.Change) (store.Change, error) {
	network, err := ParseNetwork(text)
	if err != nil {
		return store.Change{}, err
	}
	return change(network), nil
}

// ParseNetwork reads an address or a network in CIDR form into the one form under which it is kept: without host
// bits, and IPv4 as such also when it came mapped into IPv6. All of the Internet is refused, for nobody could
// take that back.
func ParseNetwork(text string) (netip.Prefix, error) {
	malformed := fault.New(fault.Invalid, "ip must be an address or a network in CIDR form")
	network, err := netip.ParsePrefix(text)
	if err != nil {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, malformed
		}
		network = netip.PrefixFrom(addr, addr.BitLen())
	}
	if addr := network.Addr(); addr.Is4In6() {
		if network.Bits() < 96 {
			return netip.Prefix{}, malformed
		}
		network = netip.PrefixFrom(addr.Unmap(), network.Bits()-96)
	}
	if network.Bits() == 0 {
		return netip.Prefix{}, fault.New(fault.Invalid, "ip must not be the whole Internet")
	}
	return network.Masked(), nil
}

func checkText(text, field string, limit int) error {
	if len(text) > limit || strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
		return fault.New(fault.Invalid, fmt.Sprintf("%s must be text of at most %d bytes", field, limit))
	}
	return nil
}

// checkIcon takes a web address, or nothing to have no icon.
func checkIcon(icon string) error {
	if err := checkText(icon, "icon", maxIcon); err != nil || icon == "" {
		return err
	}
	if u, err := url.Parse(icon); err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return fault.New(fault.Invalid, "icon must be an http or https URL")
	}
	return nil
}

// failed gives an error of the store its reason.
func failed(err error) error {
	var refused *store.RefusedError
	switch {
	case errors.As(err, &refused):
		return fault.Wrap(refused.Verdict.Reason, refused.Verdict.Message, err)
	case errors.Is(err, store.ErrNotModerator):
		return fault.Wrap(fault.Restricted, "only owners and admins may do this", err)
	case errors.Is(err, store.ErrTooManyNetworks):
		return fault.Wrap(fault.Restricted, fmt.Sprintf("at most %d networks can be blocked", store.MaxNetworks), err)
	case errors.Is(err, store.ErrTokenUsed):
		return fault.Wrap(fault.Restricted, "token was used", err)
	case errors.Is(err, store.ErrNoCommunity):
		return fault.Wrap(fault.NotFound, "no such community", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case store.IsTransient(err):
		return fault.Wrap(fault.Overloaded, "cannot moderate at the moment, try again", err)
	}
	return err
}
