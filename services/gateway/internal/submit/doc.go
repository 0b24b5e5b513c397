// Package submit sends events to ingest: one long-lived Publish stream to every ingest replica, shared
// by all sockets, with natural batching: whatever waits goes in the next message, up to a window without
// verdicts. Beyond it connections take turns, so that a flood of one holds up no other.
//
// It owns the way from a submission to its verdict and answers every submission exactly once: with
// ingest's verdict, or with OVERLOADED when no replica could be asked, or with TIMEOUT. When a stream
// breaks, each submission that was on it is sent once more, to another replica or to the same one
// after it came back; that is safe because events are idempotent by id. It must never judge an event.
//
// Submissions with the same affinity (one connection's) go to the same replica while the set of usable
// streams does not change, so what a client pipelines arrives in order; what was on a stream that broke goes
// before what came later.
//
// Goroutines: per replica one that opens streams, and per stream a sender and a receiver; one janitor
// for deadlines. Done callbacks run on the receiver, the janitor, or the caller of Submit, and must
// not block.
package submit
