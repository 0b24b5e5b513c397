// Package model is a relay as NIP-01 and NIP-09 describe it, computed in the most obvious way: a list of
// events, gone through from beginning to end. It is the judge of the differential cases, so it must stay
// slow and simple, and must share no code with the relay but the vocabulary of pkg/nostr.
//
// It does no I/O and has no goroutine. A Store belongs to one goroutine.
package model
