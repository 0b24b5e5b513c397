package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
)

// Limits are the bounds of Check.
type Limits struct {
	// Content is the greatest size of an event's content in bytes; 0 is no limit.
	Content int
	// Skew is how far created_at may be from now, either way; 0 is no limit.
	Skew time.Duration
}

// checks are in the order in which clients are told.
var checks = []func(*Candidate, Limits, time.Time) Verdict{
	func(c *Candidate, l Limits, now time.Time) Verdict { return checkTime(c.Event.CreatedAt, l.Skew, now) },
	func(c *Candidate, l Limits, _ time.Time) Verdict { return checkContent(c.Event.Content, l.Content) },
	func(c *Candidate, _ Limits, _ time.Time) Verdict { return c.checkAuthor() },
	func(c *Candidate, _ Limits, _ time.Time) Verdict { return checkCommand(c.Event.Kind) },
	func(c *Candidate, _ Limits, now time.Time) Verdict { return c.checkExpiry(now) },
	func(c *Candidate, _ Limits, _ time.Time) Verdict { return c.checkChannel() },
	func(c *Candidate, _ Limits, _ time.Time) Verdict { return checkAddress(c.Event) },
	func(c *Candidate, _ Limits, _ time.Time) Verdict { return checkForm(c.Event) },
	func(c *Candidate, _ Limits, now time.Time) Verdict { return c.checkKindRules(now) },
	func(c *Candidate, _ Limits, now time.Time) Verdict { return c.parseCommand(now) },
}

// Check decides everything that needs neither the signature nor the database: time, size, authorship,
// kind, expiry, channel, content. CheckKind and the signature come before it. It returns the candidate if
// the verdict accepts.
func Check(s Submission, ev *nostr.Event, lim Limits, now time.Time) (*Candidate, Verdict) {
	c := &Candidate{Submission: s, Event: ev}
	for _, check := range checks {
		if v := check(c, lim, now); !v.Accepted() {
			return nil, v
		}
	}
	return c, Verdict{}
}

func checkTime(createdAt int64, skew time.Duration, now time.Time) Verdict {
	if skew <= 0 {
		return Verdict{}
	}
	at, s := now.Unix(), int64(skew/time.Second)
	if createdAt < at-s || createdAt > at+s {
		return invalid("event timestamp too far from server time")
	}
	return Verdict{}
}

func checkContent(content string, limit int) Verdict {
	if limit > 0 && len(content) > limit {
		return invalid(fmt.Sprintf("content exceeds maximum size of %d bytes (got %d)", limit, len(content)))
	}
	return Verdict{}
}

func (c *Candidate) checkAuthor() Verdict {
	switch {
	case len(c.Principal) == 0:
		return Verdict{fault.AuthRequired, "not authenticated"}
	case isProtected(c.Event.Tags) && !slices.Contains(c.Principal, c.Event.PubKey):
		return Protected
	case c.Event.Kind.IsGiftWrap(), slices.Contains(c.Principal, c.Event.PubKey):
		return Verdict{}
	}
	return invalid("event pubkey does not match authenticated identity")
}

func (c *Candidate) checkExpiry(now time.Time) Verdict {
	at, ok := c.Event.Expiration()
	switch {
	case !ok && c.Event.Tags.Count("expiration") > 0:
		// To keep it for ever is not what its author meant.
		return invalid("expiration is not a Unix timestamp")
	case !ok:
		return Verdict{}
	case at <= now.Unix():
		return invalid("event has expired")
	}
	c.ExpiresAt = at
	return Verdict{}
}

func (c *Candidate) checkChannel() Verdict {
	h, ok := c.Event.Channel()
	scope := kind.Of(c.Event.Kind).Scope
	switch {
	case scope == kind.Global:
		return Verdict{} // what the tag says means nothing here
	case !ok && c.Event.Kind == nostr.KindCreateGroup:
		c.Channel = newChannelID(c.Event.ID)
		return Verdict{}
	case c.Event.Kind == nostr.KindCreateGroup && !nostr.ValidChannelID(h):
		return invalid("missing or invalid h tag")
	case !ok && scope == kind.Channel:
		return invalid("channel-scoped events must include an h tag")
	case ok && !nostr.ValidChannelID(h):
		return invalid("h tag is not a channel id")
	}
	c.Channel = h
	return Verdict{}
}

// maxAddress is how many bytes the d tag of an addressable event may have.
const maxAddress = 1024

func checkAddress(ev *nostr.Event) Verdict {
	if d := ev.DTag(); len(d) > maxAddress && ev.Kind.IsAddressable() {
		return invalid(fmt.Sprintf("d tag too long (%d bytes, max %d)", len(d), maxAddress))
	}
	return Verdict{}
}

func (c *Candidate) checkKindRules(now time.Time) Verdict {
	switch c.Event.Kind {
	case nostr.KindMetadata:
		if !json.Valid([]byte(c.Event.Content)) {
			return invalid("kind:0 content must be valid JSON")
		}
	case nostr.KindDeletion:
		return c.parseDeletion()
	case nostr.KindReaction:
		return c.parseReaction()
	case nostr.KindRepost, nostr.KindGenericRepost:
		if embedsProtected(c.Event.Content) {
			return invalid("reposts must not embed a protected event")
		}
	case nostr.KindVanish:
		return c.parseVanish()
	case nostr.KindAgentProfile:
		return checkAgentProfile(c.Event.Content)
	case nostr.KindAgentFrame:
		return c.parseFrame(now)
	case nostr.KindTurnMetric:
		return c.parseMetric()
	case nostr.KindJobRequest:
		return checkJob(c.Event)
	case nostr.KindReminder:
		return c.parseReminder(now)
	case nostr.KindMessageDiff:
		if v := checkDiff(c.Event); !v.Accepted() {
			return v
		}
		return c.parseReply()
	default:
		if IsMessage(c.Event.Kind) {
			return c.parseReply()
		}
		return c.parseReference()
	}
	return Verdict{}
}

// parseDeletion reads the targets. A tag that names nothing that can exist is ignored, as clients put
// all sorts of things there, but a request without any target is refused: to accept it would look like a
// deletion that worked.
func (c *Candidate) parseDeletion() Verdict {
	d := &Deletion{}
	named := false
	ids := map[nostr.ID]bool{}
	for t := range c.Event.Tags.All("e") {
		if id, err := nostr.ParseID(t.Value()); err == nil && !ids[id] {
			ids[id], named = true, true
			d.IDs = append(d.IDs, id)
		}
	}
	addresses := map[Coordinate]bool{}
	for t := range c.Event.Tags.All("a") {
		at, author, ok := parseAddress(t.Value())
		if !ok {
			continue
		}
		named = true
		if author == c.Event.PubKey && !addresses[at] {
			addresses[at] = true
			d.Addresses = append(d.Addresses, at)
		}
	}
	if !named {
		return invalid("deletion events must reference at least one target via e or a tag")
	}
	c.Deletion = d
	return Verdict{}
}

// parseAddress reads "kind:pubkey:d" (NIP-01); d may hold colons.
func parseAddress(s string) (Coordinate, nostr.PubKey, bool) {
	kindText, rest, ok := strings.Cut(s, ":")
	if !ok {
		return Coordinate{}, nostr.PubKey{}, false
	}
	n, err := strconv.ParseUint(kindText, 10, 16)
	if err != nil {
		return Coordinate{}, nostr.PubKey{}, false
	}
	authorText, d, _ := strings.Cut(rest, ":")
	author, err := nostr.ParsePubKey(authorText)
	if err != nil {
		return Coordinate{}, nostr.PubKey{}, false
	}
	kind := nostr.Kind(n)
	switch {
	case kind.IsReplaceable():
		return Coordinate{Kind: kind}, author, true // there is no d to compare
	case kind.IsAddressable():
		return Coordinate{Kind: kind, D: d}, author, true
	}
	return Coordinate{}, nostr.PubKey{}, false
}
