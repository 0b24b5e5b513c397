package partition

import (
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
)

// inChannel returns an event of a channel as filters see it that ask for the channel: with its h tag. A reaction or
// a deletion that belongs to the channel of its target need not have one of its own. A channel's state has it or
// not; search makes that difference too.
func inChannel(e *nostr.Event, channel string) *nostr.Event {
	if h, _ := e.Channel(); channel == "" || h == channel || kind.Of(e.Kind).Scope == kind.State {
		return e
	}
	with := *e
	with.Tags = append(slices.Clip(e.Tags), nostr.Tag{"h", channel})
	return &with
}
