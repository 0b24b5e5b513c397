// Package kind is the registry of event kinds: one table that says for every kind what it is called, how it is
// kept, where it belongs, who may send it and who may read it.
//
// Whatever depends on an event's kind asks this table: ingest what may be written (Sender, Scope), search and
// fan-out what may be read (AudienceOf), the gateway which filters are refused (Refusal), search what is
// indexed (Searchable). services/docs/kinds.md is generated from it. A kind that is not in the table has the
// rules of its range of numbers in NIP-01: anybody may send it, in a channel or not, and whoever may read the
// channel may read it.
//
// A few rows are wider than those of other relays of this family on purpose: NIP-29 lets any event be sent to
// a channel, so an h tag binds notes, articles and git events to their channel, also where others ignore it and show the event to
// everybody. An h tag is ignored (Global) only where there is one event per author, or where the
// relay, or the parties, are its only readers.
//
// The package is pure: no I/O, no state but the table, which is built once and never changes. Everything is safe
// for concurrent use.
package kind
