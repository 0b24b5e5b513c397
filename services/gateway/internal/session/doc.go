// Package session is the Nostr side of one connection: who has authenticated on it (NIP-42), the
// subscriptions it owns (NIP-01) and the answers to its frames. What it is not: the socket (conn), the
// way to ingest (submit), placement on fan-out nodes (live).
//
// # Promises
//
// Every EVENT gets exactly one OK; every REQ ends in EOSE or CLOSED unless the client closes or
// replaces it; every COUNT gets COUNT or CLOSED. An EVENT frame of a subscription never follows its
// CLOSED, nor the frames of a REQ that replaced it. A live event is sent once, or the subscription is
// closed as lagged.
//
// # Goroutines
//
// The connection's read loop calls Message and TooBig; they decode, answer what needs no waiting, and
// block only to hold the client back. REQ and COUNT run as jobs, at most Config.Workers at a time per
// connection. Verdicts, deliveries and losses arrive on the goroutines of submit and live, which must
// not block: they only queue frames. Room runs on the connection's flushing goroutine or that of a
// delivery.
//
// # A subscription
//
//	[opening] ──all topics attached──▶ [reading] ──EOSE──▶ [catching up] ──held events sent──▶ [live]
//	     └──────────────┴───────────────────┴──── CLOSE, replaced, failed, lagged ───┴──▶ [closed]
//
// From opening on, live events are held, in bounds; in the last state they go straight to the
// connection's queue. An event that the snapshot of the stored query could see is dropped in any state.
//
// Lock order: an attachment's mutex (live), then Session.mu, then subscription.mu, then the queue of
// the connection. A subscription's methods never take Session.mu with their own held.
package session
