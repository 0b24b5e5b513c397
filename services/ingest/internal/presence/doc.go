// Package presence knows who is online: which public keys are connected to any gateway, and the status that each has
// announced last (kind 20001). It owns the bucket of that name on the bus, the answers that the relay signs about it,
// and the event by which the relay tells that somebody has left.
//
// # Whose word counts
//
// There is one record for each gateway and key of which that gateway has a connection. The gateway alone decides
// whether it is there: it reports, again and again, and what it does not repeat expires. So a gateway that dies takes
// its records with it and nobody has to count for it. An announcement writes the record of the gateway over which it
// came, with the status, before it is answered.
//
// A key has the status of the latest announcement for as long as any record of it is there, whichever gateway's:
// records carry on what the key has announced elsewhere. Without a record it is offline, and with one but without an
// announcement too, or when the latest says so.
//
// # Every replica knows everything
//
// Each replica follows the bucket and keeps its last state in memory, the book. What it answers is never older than
// the question: it asks the bucket how far it is, and answers when it has come there itself. If that cannot be found
// out, the answer is an error. The same goes for expiry: a record ends only when the bucket is known to hold no newer
// one.
//
// When the last record of a key that was online ends, every replica publishes that it is offline, under the same
// message id, so that the stream keeps one. The event is signed by the relay, because the one who left cannot: its p
// tag names the key, and so does the envelope's subject. Losing it, if the whole of ingest or the database is away,
// costs no more than that somebody seems online until a client asks again.
//
// # Goroutines
//
// Run has three: one follows the bucket and owns the order of what it tells, one looks for what has expired, one
// publishes departures. They and the calls share the book under Service.mu, which is held for a few instructions.
package presence
