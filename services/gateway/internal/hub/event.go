package hub

import (
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
)

// Event is one event on its way to many subscriptions.
type Event struct {
	// Header is the parsed header.
	Header *commonv1.Header

	body []byte // the raw event and the bracket that ends every EVENT frame
}

// NewEvent prepares an envelope for delivery. Its raw bytes are copied once.
func NewEvent(env *commonv1.Envelope) *Event {
	return &Event{Header: env.GetHeader(), body: Body(env.GetRaw())}
}

// Size is about how many bytes a frame of the event takes.
func (e *Event) Size() int { return len(e.body) }

// Raw returns the event's JSON; not to be changed.
func (e *Event) Raw() []byte { return e.body[:len(e.body)-1] }

// Fresh builds a frame of the event for one recipient; any goroutine may call it.
func (e *Event) Fresh(prefix []byte) cork.Frame { return cork.Text(prefix, e.body) }

// Body returns the part of an EVENT frame that does not depend on the subscription: the raw event and
// the closing bracket.
func Body(raw []byte) []byte {
	return append(append(make([]byte, 0, len(raw)+1), raw...), ']')
}

// Prefix returns the part of an EVENT frame that comes before the event.
func Prefix(subID string) []byte {
	full := wire.AppendEvent(nil, subID, nil)
	return full[: len(full)-1 : len(full)-1]
}

// Stored builds the EVENT frame of a stored event for one recipient, in one piece if it is small.
func Stored(prefix, raw []byte) cork.Frame {
	return cork.Build(len(prefix)+len(raw)+1, func(dst []byte) []byte {
		dst = append(dst, prefix...)
		dst = append(dst, raw...)
		return append(dst, ']')
	})
}

// IsChannelState reports whether a kind is a channel's relay-signed state (NIP-29), which is
// delivered on two topics: the channel's and the community's global one.
func IsChannelState(k uint32) bool { return kind.Of(nostr.Kind(k)).Scope == kind.State }
