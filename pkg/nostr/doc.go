// Package nostr is the vocabulary of the protocol: events, tags, kinds, filters, keys, canonical ids
// and BIP-340 signatures (NIP-01). It owns what an event is and when a filter matches it.
//
// Verifying is the costly part: Event.Verify takes one event, VerifyEach a batch of them for less each.
//
// It is pure: no I/O but the system's random source, no clock, no logging, no goroutines, and it must stay so; decoding of frames is
// in nostr/wire, authentication events are judged in nostr/auth. All functions are safe for concurrent
// use; values are plain data and belong to whoever holds them. An Event or Filter that several
// goroutines can see must not be changed any more.
//
// Strings of events and filters are valid UTF-8 and may hold any code point, NUL included; nostr/wire
// guarantees it for what comes from clients. A string made in Go that is not valid UTF-8 has no
// canonical form: such an event's id means nothing.
package nostr
