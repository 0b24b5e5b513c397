// Package ingest is the only writer: it verifies events, decides whether they may be written, commits them
// in groups together with the record that they must be passed on, and passes them on.
//
// # The way of a submission
//
//	stream reader ──▶ verify.Pool ──▶ stream sequencer ──▶ commit.Queue ──▶ Postgres ──▶ outbox.Publisher ──▶ JetStream
//	                  (any order)     (order of client)    (one batch        │
//	                                                        at a time)       └──▶ verdict ──▶ stream writer
//
// Each stage is bounded, and a full stage makes the one before it wait, up to the reader, which then no longer
// reads: gRPC's flow control makes the caller feel it. Verdicts never wait for a reader of theirs: a stream
// takes no more submissions than it has room for verdicts.
//
// # Invariants
//
//   - An accepting verdict follows the commit (ephemeral kinds: the acknowledgement of JetStream).
//   - Every submission that was read gets one verdict, unless its stream dies first; what was on its way is
//     committed nevertheless, and the caller, who sends it again elsewhere, is told "duplicate".
//   - What one client sends takes effect in the order of sending (see stream and commit.Queue).
//   - Neither Postgres nor NATS has to be there: without the former verdicts are "try again", without the latter
//     only ephemeral events are, and rows wait in the outbox.
//
// Goroutines: three per stream (reader, sequencer, and the handler as writer), one per verify worker, one
// per queue, three of the publisher, one for each sweep.
package ingest
