// Package live keeps subscriptions attached to fan-out nodes: it places each on a node, tells the
// subscription what that node delivers, and attaches it elsewhere, from the last position seen, when
// the node is lost, overloaded or no longer the best choice.
//
// It owns placement, handles and positions. It delivers each event to an attachment at most once and
// in the order of its stream, whatever nodes say twice; when it cannot keep an attachment complete it
// says so to the Target, never skips. It must never wait for a connection: Targets do not block.
//
// # Goroutines
//
// One loop goroutine owns placement: which attachments there are, which link serves which, what moves.
// Everybody else talks to it through an inbox that never blocks. Per node one goroutine opens streams;
// per stream (a link) there is a sender, and a receiver, which hands deliveries straight to the Targets
// through the handle registry, without the loop.
//
// # States of an attachment
//
//	            place                 Attached
//	[waiting] ────────▶ [subscribed] ──────────▶ [attached] ──better node──▶ [moving] ──┐
//	    ▲                    │ link lost, OVERLOADED │   ▲                     │  Attached from the new one:
//	    └────────────────────┴───────────────────────┘   └─────────────────────┴─ the old one is told to forget
//
// Waiting or subscribed for longer than Config.Patience, NOT_FOUND (the stream no longer holds what is
// needed to resume) and INVALID end it: Target.Lost.
//
// A node that says it does not reach the bus is left, make before break, for one that does, and gets no new seats
// meanwhile. While no node reaches the bus everybody stays: whichever comes back goes on by itself.
//
// A node that has said that it lives and then says nothing for 1.5 s is frozen or out of reach: its link is ended.
//
// # Positions
//
// An attachment remembers the last position delivered per stream, guarded by its mutex, which is held
// while its Target takes the event: so two nodes that serve it for a moment cannot overtake each other.
// A link remembers per partition how far the node has come (deliveries to anybody, and watermarks). A
// handle that was resumed is behind that until the node's first watermark after Attached, because its
// replay is going on; until then only its own deliveries count.
//
// A stream may hold an event twice, at two positions (see repeats); the second copy is dropped for everybody.
//
// Lock order: an attachment's mutex, then whatever the Target locks, then the inbox. The loop holds no
// lock when it calls a Target.
package live
