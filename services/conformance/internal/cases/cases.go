// Package cases holds what the NIPs say of relays, as cases of package suite, a file or a few for each NIP.
// A case says in its title what a relay does, makes its own keys and events, and looks at nothing that it
// did not make, so that cases run beside each other and against a relay in use. It must know nothing of a
// particular relay: what relays may decide differently is read from their NIP-11 document, or is not
// required.
package cases

import (
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/model"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// All returns every case.
func All() []suite.Case {
	return slices.Concat(
		suite.Group(1, events...),
		suite.Group(1, malformedEvents()...),
		suite.Group(1, spelling()...),
		suite.Group(1, timestamps()...),
		suite.Group(1, finding...),
		suite.Group(1, ordering...),
		suite.Group(1, filters...),
		suite.Group(1, subscriptions...),
		suite.Group(1, replaceable()...),
		suite.Group(1, races()...),
		suite.Group(1, frames()...),
		suite.Group(1, differential...),
		suite.Group(4, nip04...),
		suite.Group(9, nip09...),
		nip11(),
		suite.Group(13, nip13...),
		suite.Group(29, nip29...),
		suite.Group(40, nip40...),
		suite.Group(42, nip42()...),
		suite.Group(43, nip43...),
		suite.Group(45, nip45...),
		suite.Group(50, nip50...),
		suite.Group(59, nip59...),
		suite.Group(62, nip62...),
		suite.Group(70, nip70...),
		suite.Group(77, nip77...),
		suite.Group(86, nip86...),
	)
}

// filter is a well-formed filter; object is anything else that a client may send in its place.
type (
	filter = model.Filter
	object = map[string]any
)

func tag(name string, values ...string) nostr.Tag {
	return append(nostr.Tag{name}, values...)
}

// by filters on authors.
func by(users ...*suite.User) filter {
	var f filter
	for _, u := range users {
		f.Authors = append(f.Authors, u.Hex)
	}
	return f
}

// only filters on ids.
func only(events ...*nostr.Event) filter {
	var f filter
	for _, e := range events {
		f.IDs = append(f.IDs, e.ID.String())
	}
	return f
}

// tagged filters on one tag.
func tagged(name string, values ...string) filter {
	return filter{Tags: map[string][]string{name: values}}
}

// newestFirst returns the events in the order of a stored answer.
func newestFirst(events ...*nostr.Event) []*nostr.Event {
	return slices.SortedFunc(slices.Values(events), model.Order)
}

// notes makes a text note at each second.
func notes(u *suite.User, at []int64, tags ...nostr.Tag) []*nostr.Event {
	list := make([]*nostr.Event, len(at))
	for i, second := range at {
		list[i] = u.Event(second, nostr.KindText, "note", tags...)
	}
	return list
}

// address is what an a tag says of the address of e.
func address(e *nostr.Event) string {
	d := ""
	if e.Kind.IsAddressable() {
		d = e.DTag()
	}
	return kindText(e.Kind) + ":" + e.PubKey.String() + ":" + d
}
