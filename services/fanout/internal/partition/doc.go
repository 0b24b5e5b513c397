// Package partition serves the live subscriptions of one partition: it consumes the partition's two
// streams while somebody is subscribed, matches, checks access and pushes to the gateways' links.
//
// One goroutine, Run, owns everything: subscriptions, index, access verdicts and the position. It never
// waits for search, for a gateway or for the bus: helpers do, and report to it through channels. They
// are the feed (one goroutine per stream that decodes what the bus delivers), replays (one per gateway
// that has something to catch up on) and the flight (one question to search at a time). Run waits for
// all of them.
//
//	            first subscription        both heads are read
//	[closed] ─────────────────────▶ [opening] ─────────────────▶ [open]
//	    ▲                                                          │ messages lost from the stream, or the
//	    │      nobody subscribed for the idle grace                │ stream is another one: all are lost,
//	    └──────────────────────────────────────────────────────────┘ and those who come open it again
//
// What makes delivery exact:
//
//   - A subscription is filed between two envelopes, by the goroutine that processes them; its position
//     is the one of the last envelope begun. What comes after is matched with it in the index.
//   - An envelope whose access cannot be decided stops both streams (not the commands) until search has
//     answered or the hold is over; then those for whom it is undecided are lost, and told so.
//   - A subscription that resumes behind the partition is filed at once, but what is delivered to it live
//     is held until its replay has brought everything up to where it was filed.
//   - A watermark is sent to a gateway only while none of its subscriptions is being replayed.
//
// Committed events that left the stream before they were consumed lose every subscription (NOT_FOUND),
// because the gap must be said. Ephemeral events are owed only while the stream holds them, so their
// loss is counted and consumption goes on with what is left.
package partition
