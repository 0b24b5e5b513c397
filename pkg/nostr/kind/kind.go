package kind

import (
	"cmp"
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Class says what is kept of the events of a kind.
type Class uint8

// The classes: those of NIP-01, and what is never an event of its own.
const (
	// Regular events are all kept.
	Regular Class = iota
	// Replaceable events are kept once for each author.
	Replaceable
	// Ephemeral events are passed on and not kept.
	Ephemeral
	// Addressable events are kept once for each author and d tag.
	Addressable
	// Unstored events are neither kept nor passed on: commands that leave an effect, proofs of who asks, and
	// what the relay makes up for one answer.
	Unstored
)

// Scope says what the h tag of an event means.
type Scope uint8

// The scopes.
const (
	// Optional events are in the channel that their h tag names, without one in none.
	Optional Scope = iota
	// Global events are in no channel; an h tag means nothing to the relay.
	Global
	// Channel events are not accepted without an h tag.
	Channel
	// Target events are in the channel of what they are about; their h tag names it where they have one.
	Target
	// State is the state of the channel that the d tag names. It is delivered to those who ask for that
	// channel, and to those who ask for no channel, of whoever may read it.
	State
)

// Sender says who may submit events of a kind.
type Sender uint8

// The senders.
const (
	// Anybody who may write may send them.
	Anybody Sender = iota
	// Socket is anybody who may write, over a WebSocket and not over HTTP.
	Socket
	// Command events ask the relay to do something: it does that or refuses them.
	Command
	// Relay events are signed with the relay's own key. Clients take them for the relay's word.
	Relay
	// Proof events authorize a connection or a request that carries them, and must not be published: whoever
	// gets one could use it.
	Proof
	// Reserved events may not be sent by anybody.
	Reserved
)

// Feeds are the feeds of a reader that events are in: what somebody who was away wants to see first.
type Feeds uint8

// The feeds.
const (
	// Mentions are events whose p tags name the reader.
	Mentions Feeds = 1 << iota
	// NeedsAction are events whose p tags name the reader as who has to do something.
	NeedsAction
	// Activity is what others say and do.
	Activity
)

// Rules are what holds for a kind.
type Rules struct {
	// Class says what is kept.
	Class Class
	// Scope says where events belong.
	Scope Scope
	// Sender says who may submit them.
	Sender Sender
	// Readers says who may read them, of those who may read their channel or the community.
	Readers Readers
	// Ask says what a filter has to say that names the kind.
	Ask Ask
	// Form is what they have to be like. Shared events have to say whether they are in no other than the one way.
	Form Form
	// Searchable kinds hold text for people and are in the text index (NIP-50).
	Searchable bool
	// Audited kinds have an entry in the community's audit log.
	Audited bool
	// Triggers is set where events may start workflows.
	Triggers bool
	// Feeds are the feeds that events are in. They are of kinds that everybody may read.
	Feeds Feeds
	// Known is set for the kinds that the table names. The zero Kind is known.
	Known bool
}

// Info is a row of the table: a kind, or some that are next to each other.
type Info struct {
	// First and Last are the kinds; mostly they are one.
	First, Last nostr.Kind
	// Name is that of the constant in package nostr without "Kind", empty for numbers that are set aside.
	Name string
	// Meaning is what the kind is for, in a few words.
	Meaning string
	// Source is the NIP or BUD that defines it, empty for the product's own.
	Source string
	Rules
}

// Of returns the rules of a kind. It is one look-up in an array.
func Of(k nostr.Kind) Rules { return rules[index[k]] }

// All returns the table, ascending.
func All() []Info { return slices.Clone(rows) }

// Lookup returns the row of a kind, and whether the table names it.
func Lookup(k nostr.Kind) (Info, bool) {
	at, found := slices.BinarySearchFunc(rows, k, func(row Info, k nostr.Kind) int {
		if row.First <= k && k <= row.Last {
			return 0
		}
		return cmp.Compare(row.First, k)
	})
	if !found {
		return Info{}, false
	}
	return rows[at], true
}

// List returns the kinds of the table for whose rules want holds, ascending.
func List(want func(Rules) bool) []nostr.Kind {
	var list []nostr.Kind
	for _, r := range rows {
		if !want(r.Rules) {
			continue
		}
		for k := int(r.First); k <= int(r.Last); k++ {
			list = append(list, nostr.Kind(k))
		}
	}
	return list
}

var (
	rows = complete(table)
	// rules are the different rules, few enough for a byte: those of unknown kinds by class first.
	rules, index = build(rows)
)

// complete fills in what the table leaves out: a row is of one kind, its class is that of its numbers, and
// what is kept, or done at a command, is audited.
func complete(table []Info) []Info {
	all := slices.Clone(table)
	for i := range all {
		r := &all[i]
		r.Last = max(r.First, r.Last)
		if r.Class != Unstored {
			r.Class = classOf(r.First)
		}
		r.Audited = isAudited(r.Rules)
		r.Known = true
	}
	return all
}

func isAudited(r Rules) bool {
	return r.Sender != Reserved && r.Class != Ephemeral && (r.Class != Unstored || r.Sender == Command)
}

// classOf returns the class by NIP-01.
func classOf(k nostr.Kind) Class {
	switch {
	case k.IsReplaceable():
		return Replaceable
	case k.IsEphemeral():
		return Ephemeral
	case k.IsAddressable():
		return Addressable
	default:
		return Regular
	}
}

// build makes the look-up: for each kind the place of its rules.
func build(rows []Info) (rules []Rules, index *[1 << 16]uint8) {
	index = new([1 << 16]uint8)
	for c := Regular; c <= Addressable; c++ {
		r := Rules{Class: c}
		r.Audited = isAudited(r)
		rules = append(rules, r)
	}
	for k := range index {
		index[k] = uint8(classOf(nostr.Kind(k)))
	}
	for _, row := range rows {
		at := slices.Index(rules, row.Rules)
		if at < 0 {
			at = len(rules)
			rules = append(rules, row.Rules)
		}
		for k := int(row.First); k <= int(row.Last); k++ {
			index[k] = uint8(at)
		}
	}
	return rules, index
}
