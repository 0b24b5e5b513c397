// Package search answers every read: stored queries, counts, text search, communities by host, who may read
// what, and what moderators decided.
//
// It owns the text index (schema search of the database; package index keeps it) and no other data. It reads
// what ingest wrote, through a role that cannot write there, and keeps nothing between requests, so that any
// number of replicas are equal and a retry on another one is always right.
//
// What it promises:
//   - All filters of a query are answered from one Postgres snapshot, which is returned with the events.
//     With it the gateway joins history and live delivery without a gap and without repeats.
//   - Access is decided inside the statements that read the events. What the reader may not see is left out
//     without a trace: a hidden channel and one that does not exist give the same bytes.
//   - Slow queries do not stand in the way of the short questions (hosts, access) that sockets and live
//     delivery wait for: those have places and connections of their own.
//   - Everything is bounded: requests in hand (beyond, Overloaded at once), the wait for a connection, the
//     time of a statement, events per filter, bytes per answer, the result of a count.
//   - Postgres may be away: requests fail with Overloaded quickly, the process stays up and ready.
//
// # Bounds of an answer
//
// A filter's limit is at most Config.Limit. Besides, all filters of a query share Config.AnswerBytes of raw
// JSON evenly; a filter whose newest events are larger than its share is answered as if its limit were what
// fits, and at least by one event. NIP-01 lets a relay return fewer events than asked for; the client pages
// on with until, as always.
//
// Requests run on the goroutines of the gRPC server. A request holds a place from beginning to end; Drain
// waits until all places are free. The Run goroutine compares the schema's version with the program's, and then waits for the two
// goroutines that keep the text index.
package search
