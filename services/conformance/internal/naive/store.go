package naive

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/model"
)

// Kinds with rules of their own.
const (
	kindDirect  nostr.Kind = 4
	kindVanish  nostr.Kind = 62
	kindAdded   nostr.Kind = 8_000
	kindRemoved nostr.Kind = 8_001
	kindMembers nostr.Kind = 13_534
	kindWrapped nostr.Kind = 21_059
	kindJoin    nostr.Kind = 28_934
)

// submit takes an EVENT or AUTH and answers it. Called with the relay's mu held.
func (c *conn) submit(label string, raw json.RawMessage) {
	r := c.relay
	var head struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(raw, &head)
	if _, err := nostr.ParseID(head.ID); err != nil {
		c.send(client.LabelNotice, "invalid: no event")
		return
	}
	e, err := client.DecodeEvent(raw)
	if err != nil {
		if r.fault(NoOKForMalformed) {
			c.send(client.LabelNotice, "invalid: no event")
			return
		}
		c.send(client.LabelOK, head.ID, false, "invalid: no event")
		return
	}
	var text string
	switch {
	case e.Verify() != nil && !r.fault(AnySignature):
		text = "invalid: id or signature"
	case label == client.LabelAuth:
		text = c.authenticate(e)
		if text == "" && r.fault(PublishesAuth) {
			r.deliver(e)
		}
	default:
		text = c.store(e)
	}
	accepted := text == "" || strings.HasPrefix(text, "duplicate:")
	if !accepted && r.fault(BareRefusals) {
		text = "no"
	}
	c.send(client.LabelOK, head.ID, accepted, text)
}

// store keeps and delivers an event, or says why not. Called with the relay's mu held.
func (c *conn) store(e *nostr.Event) string {
	r := c.relay
	if text := c.policy(e); text != "" {
		return text
	}
	if e.Kind.IsEphemeral() && !r.fault(StoresEphemeral) {
		r.deliver(e)
		return ""
	}
	if slices.ContainsFunc(r.events, func(known *nostr.Event) bool { return known.ID == e.ID }) {
		return "duplicate: here already"
	}
	if at := address(e); at != "" {
		i := slices.IndexFunc(r.events, func(known *nostr.Event) bool { return address(known) == at })
		if i >= 0 {
			known := r.events[i]
			tie := known.CreatedAt == e.CreatedAt
			if !r.fault(OlderReplaces) && ((tie && r.fault(TieStays)) || model.Order(known, e) < 0) {
				return "duplicate: a newer one is here"
			}
			r.events = slices.Delete(r.events, i, i+1)
		}
	}
	r.events = append(r.events, e)
	switch e.Kind { //nolint:exhaustive // others need nothing
	case nostr.KindDeletion:
		r.delete(e)
	case kindVanish:
		r.vanish(c, e)
	}
	r.deliver(e)
	return ""
}

// policy says why an event is not taken, empty if it is.
func (c *conn) policy(e *nostr.Event) string {
	r := c.relay
	now, limits := time.Now().Unix(), r.opts.Limitation
	exceeds := func(limit *int64, n int) bool { return limit != nil && int64(n) > *limit && !r.fault(AnyLength) }
	_, protected := e.Tags.First("-")
	gone, hasGone := r.vanished[e.PubKey]
	switch {
	case r.opts.Locked && len(c.keys) == 0:
		return "auth-required: who are you?"
	case e.Kind == nostr.KindAuth && !r.fault(PublishesAuth):
		return "invalid: not to be published"
	case (e.Kind == kindMembers || e.Kind == kindAdded || e.Kind == kindRemoved) && e.PubKey != r.self.PubKey() && !r.fault(MembersByAll):
		return "restricted: only the relay"
	case e.Kind == kindJoin:
		return "restricted: no such code"
	case exceeds(limits.MaxContentLength, utf8.RuneCountInString(e.Content)), exceeds(limits.MaxEventTags, len(e.Tags)):
		return "invalid: too long"
	case limits.CreatedAtLowerLimit != nil && e.CreatedAt < now-*limits.CreatedAtLowerLimit && !r.fault(AnyAge),
		limits.CreatedAtUpperLimit != nil && e.CreatedAt > now+*limits.CreatedAtUpperLimit && !r.fault(AnyAge):
		return "invalid: time"
	case limits.MinPowDifficulty != nil && !worked(e, int(*limits.MinPowDifficulty)) && !r.fault(NoWork):
		return "pow: more work"
	case protected && !c.keys[e.PubKey] && !r.fault(ProtectedByAll):
		return "auth-required: only its author"
	case (e.Kind == 6 || e.Kind == 16) && embedsProtected(e.Content) && !r.fault(ProtectedByAll):
		return "blocked: the repost of a protected event"
	case r.expired(e):
		return "invalid: expired"
	case hasGone && e.CreatedAt <= gone && e.Kind != kindVanish && !r.fault(VanishIsForgotten):
		return "blocked: vanished"
	case r.isDeleted(e) && !r.fault(DeletedReturns):
		return "blocked: deleted"
	}
	return ""
}

func worked(e *nostr.Event, least int) bool {
	zeros := 0
	for _, b := range e.ID {
		zeros += bits.LeadingZeros8(b)
		if b != 0 {
			break
		}
	}
	for t := range e.Tags.All("nonce") {
		if len(t) == 3 {
			target, err := strconv.Atoi(t[2])
			return err == nil && target >= least && zeros >= least
		}
	}
	return zeros >= least
}

func embedsProtected(content string) bool {
	inner, err := client.DecodeEvent([]byte(content))
	if err != nil {
		return false
	}
	_, protected := inner.Tags.First("-")
	return protected
}

func (r *Relay) expired(e *nostr.Event) bool {
	at, expires := e.Expiration()
	return expires && at <= time.Now().Unix() && !r.fault(ServesExpired)
}

// address names the events of which one is kept, empty for others.
func address(e *nostr.Event) string {
	switch {
	case e.Kind.IsReplaceable():
		return fmt.Sprintf("%d:%s:", e.Kind, e.PubKey)
	case e.Kind.IsAddressable():
		return fmt.Sprintf("%d:%s:%s", e.Kind, e.PubKey, e.DTag())
	}
	return ""
}

// mayDelete reports whether who signed a request may delete the event by its id.
func (r *Relay) mayDelete(by nostr.PubKey, e *nostr.Event) bool {
	receiver, _ := e.Tags.First("p")
	return e.Kind != nostr.KindDeletion && e.Kind != kindVanish &&
		(e.PubKey == by || r.fault(DeletesOthers) || (e.Kind == nostr.KindGiftWrap && receiver == by.String()))
}

// delete does what a deletion request asks for (NIP-09).
func (r *Relay) delete(request *nostr.Event) {
	for t := range request.Tags.All("e") {
		r.deleted[t.Value()+request.PubKey.String()] = true
		r.events = slices.DeleteFunc(r.events, func(e *nostr.Event) bool {
			return e.ID.String() == t.Value() && r.mayDelete(request.PubKey, e)
		})
	}
	for t := range request.Tags.All("a") {
		at := t.Value()
		if !strings.Contains(at, ":"+request.PubKey.String()+":") && !r.fault(DeletesOthers) {
			continue
		}
		r.below[at] = max(r.below[at], request.CreatedAt)
		r.events = slices.DeleteFunc(r.events, func(e *nostr.Event) bool {
			return address(e) == at && (e.CreatedAt <= request.CreatedAt || r.fault(DeletesNewer))
		})
	}
}

func (r *Relay) isDeleted(e *nostr.Event) bool {
	if at, below := r.below[address(e)]; below && e.CreatedAt <= at {
		return true
	}
	return e.Kind != nostr.KindDeletion && e.Kind != kindVanish && r.deleted[e.ID.String()+e.PubKey.String()]
}

// vanish does what a request to vanish asks for (NIP-62), if it means this relay.
func (r *Relay) vanish(c *conn, request *nostr.Event) {
	meant := r.fault(VanishForAnyRelay)
	for t := range request.Tags.All("relay") {
		u, err := url.Parse(t.Value())
		meant = meant || t.Value() == "ALL_RELAYS" || (err == nil && strings.EqualFold(u.Host, c.host))
	}
	if !meant {
		return
	}
	r.vanished[request.PubKey] = max(r.vanished[request.PubKey], request.CreatedAt)
	r.events = slices.DeleteFunc(r.events, func(e *nostr.Event) bool {
		receiver, _ := e.Tags.First("p")
		wrapped := e.Kind == nostr.KindGiftWrap && receiver == request.PubKey.String()
		return wrapped || (e.PubKey == request.PubKey && e.CreatedAt <= request.CreatedAt && e.ID != request.ID)
	})
}

// mayRead reports whether the client may see an event: gift wraps are for their receivers, direct messages
// for their parties.
func (c *conn) mayRead(e *nostr.Event) bool {
	switch e.Kind {
	case kindDirect, nostr.KindGiftWrap, kindWrapped:
	default:
		return true
	}
	if c.relay.fault(WrapsForAll) || (e.Kind == kindDirect && c.keys[e.PubKey]) {
		return true
	}
	for t := range e.Tags.All("p") {
		if key, err := nostr.ParsePubKey(t.Value()); err == nil && c.keys[key] {
			return true
		}
	}
	return false
}
