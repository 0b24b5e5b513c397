package attack

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

// frameLimit is the largest frame that the relay takes by default.
const frameLimit = 512 << 10

func (s *socket) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(s.rng.UintN(256))
	}
	return b
}

// hex is n random bytes in hexadecimal.
func (s *socket) hex(n int) string { return hex.EncodeToString(s.bytes(n)) }

// event is a note with its right id and the signature of another event, which costs the attacker nothing.
func (s *socket) event(content string, tags nostr.Tags) nostr.Event {
	if tags == nil {
		tags = nostr.Tags{{"t", "hostile"}}
	}
	event := nostr.Event{
		PubKey: s.secret.PubKey(), Kind: nostr.KindText, CreatedAt: time.Now().Unix() - int64(s.rng.IntN(600)), Tags: tags, Content: content,
	}
	event.ID, event.Sig = event.ComputeID(), s.sig
	return event
}

func submit(event nostr.Event) []byte { return wire.AppendClientEvent(nil, event.AppendJSON(nil)) }

// truncated is a good frame without its end.
func (s *socket) truncated() []byte {
	frame := submit(s.event(s.hex(100), nil))
	return frame[:s.rng.IntN(len(frame))]
}

// sized is an EVENT frame of exactly n bytes with nothing wrong but its size and its signature.
func (s *socket) sized(n int) []byte {
	event := s.event("", nil)
	frame := submit(event)
	event.Content = strings.Repeat("x", max(n-len(frame), 0))
	return submit(event)
}

// nested is a REQ with one filter of arrays and objects in each other.
func (s *socket) nested(levels int) []byte {
	opening := []string{"[", `{"a":`}[s.rng.IntN(2)]
	return []byte(`["REQ","nested",` + strings.Repeat(opening, levels))
}

// escaped is an EVENT frame whose content is n escapes, with half a surrogate pair at its end or not.
func (s *socket) escaped(n int) []byte {
	escape := []string{`\ud83d\ude00`, `\u0000`, `\/`, `\\`, `\u00e9`}[s.rng.IntN(5)]
	end := []string{"", `\ud83d`, `\ude00`, `\u12`, `\x`}[s.rng.IntN(5)]
	frame := string(submit(s.event("@", nil)))
	return []byte(strings.Replace(frame, "@", strings.Repeat(escape, n)+end, 1))
}

// garbled is a frame with bytes in its string that are no UTF-8.
func (s *socket) garbled(n int) []byte {
	return append(append([]byte(`["REQ","`), s.bytes(n)...), `",{"kinds":[1]}]`...)
}

// many is a REQ or COUNT with n filters.
func (s *socket) many(n int) []byte {
	label := []string{"REQ", "COUNT"}[s.rng.IntN(2)]
	return []byte(fmt.Sprintf(`[%q,"many"`, label) + strings.Repeat(`,{"kinds":[1],"limit":500}`, n) + "]")
}

// lists is a REQ whose filters have as many values as are taken, or a few more.
func (s *socket) lists() []byte {
	filter := nostr.Filter{}
	for range 4990 + s.rng.IntN(20) {
		filter.Authors = append(filter.Authors, nostr.PubKey(s.bytes(32)))
	}
	tag := nostr.TagCondition{Name: 'e'}
	for range 2000 {
		tag.Values = append(tag.Values, s.hex(8))
	}
	return wire.AppendReq(nil, s.hex(2), filter, nostr.Filter{Tags: []nostr.TagCondition{tag}})
}

// wanted is a filter that a client might have.
func (s *socket) wanted() nostr.Filter {
	limit := s.rng.IntN(500)
	switch s.rng.IntN(4) {
	case 0:
		return nostr.Filter{Kinds: []nostr.Kind{nostr.KindText}, Limit: &limit}
	case 1:
		return nostr.Filter{Authors: []nostr.PubKey{nostr.PubKey(s.bytes(32)), s.secret.PubKey()}}
	case 2:
		return nostr.Filter{Tags: []nostr.TagCondition{{Name: 't', Values: []string{"hostile", s.hex(4)}}}, Limit: &limit}
	default:
		return nostr.Filter{Search: s.hex(3), Limit: &limit}
	}
}

// forged is an event of a good shape with another's signature.
func (s *socket) forged() []byte { return submit(s.event(s.hex(20), nil)) }

// misnamed is an event with another id.
func (s *socket) misnamed() []byte {
	event := s.event(s.hex(20), nil)
	event.ID = nostr.ID(s.bytes(32))
	return submit(event)
}

// tagged is a good event with as many tags as fit.
func (s *socket) tagged() []byte {
	var tags nostr.Tags
	for range 4000 {
		tags = append(tags, nostr.Tag{string(rune('a' + s.rng.IntN(26))), s.hex(20), s.hex(4)})
	}
	event := s.event("", tags)
	s.sign(&event)
	return submit(event)
}
