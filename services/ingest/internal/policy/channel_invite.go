package policy

import (
	"fmt"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
)

// ChannelInvite is kind 9009: an admin makes a code that opens the channel (NIP-29). It opens it to whoever shows it,
// until it expires.
type ChannelInvite struct {
	// Code is what the invited have to show.
	Code string
	// ExpiresAt is when it can no longer be used, in Unix seconds.
	ExpiresAt int64
}

// Bounds of invite codes in bytes: clients choose them, and what is short can be guessed.
const (
	minChannelCode = 8
	maxChannelCode = 256
)

// ChannelInviteLife is for how long an invite is good at most, and if it does not say when it expires (NIP-40).
const ChannelInviteLife = 30 * 24 * time.Hour

// MaxChannelInvites is how many invites of a channel may be open, those that have expired lately included.
const MaxChannelInvites = 100

func parseChannelInvite(c *Candidate) (any, Verdict) {
	code, _ := c.Event.Tags.First("code")
	if len(code) < minChannelCode || len(code) > maxChannelCode {
		return nil, invalid(fmt.Sprintf("an invite needs a code tag of %d to %d bytes", minChannelCode, maxChannelCode))
	}
	until, v := parseUntil(c)
	if !v.Accepted() {
		return nil, v
	}
	invite := &ChannelInvite{Code: code, ExpiresAt: c.Event.CreatedAt + int64(ChannelInviteLife/time.Second)}
	if until != 0 {
		invite.ExpiresAt = min(invite.ExpiresAt, until)
	}
	return invite, Verdict{}
}

// Judge decides on an invite of a channel that has some open already.
func (*ChannelInvite) Judge(g Group, open int) Verdict {
	if v := g.reach(false); !v.Accepted() {
		return v
	}
	switch {
	case !g.Actor.Manages():
		return notManager
	case g.Type == Direct:
		return immutable
	case open >= MaxChannelInvites:
		return Verdict{fault.Restricted, "the channel has as many open invites as it may have"}
	}
	return Verdict{}
}
