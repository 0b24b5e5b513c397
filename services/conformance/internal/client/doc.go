// Package client is the suite's own Nostr client (NIP-01, NIP-42, NIP-45): a socket, everything that came
// over it in order, and ways to wait for a frame. It owns how a relay's frames are read; it must never judge
// them, and it shares no code with the relay but the vocabulary of pkg/nostr, so that a mistake of the
// relay's decoder is not repeated here.
//
// Each Conn has one reader goroutine, which ends with the connection. All methods are safe for concurrent
// use. What a relay may make it keep is bounded.
package client
