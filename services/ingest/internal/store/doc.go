// Package store holds all SQL of ingest. It owns the transaction that makes a batch of events durable,
// the outbox, the removal of what has expired or whose author has vanished, communities with their members,
// and what their moderators refuse. It must never talk to anything but Postgres, and never decide what policy
// decides: it reads the State and asks.
//
// # Locks
//
// Every transaction here takes advisory locks first, in ascending order of their keys, and row locks
// after them in the order event_ids, addresses, everything else, each sorted by key; so two transactions
// cannot wait for each other, and what is left (Postgres reports a deadlock) is tried again.
//
//   - Everybody who writes events holds the community's lock and the channel's lock, shared.
//   - Who changes what a batch has read as true holds the lock of it exclusively: a deletion or a
//     request to vanish its community (a tombstone and the insertion of its target, on two replicas, otherwise
//     do not see each other), a change of members, access or moderation its community, a channel's creation
//     the channel.
//
// They are advisory locks and not SELECT … FOR SHARE, because a row lock writes: every batch would dirty the
// row of each channel that it touches, and make WAL and dead multixacts of it. And a row lock holds only
// what is there, while a batch also relies on what is not: a member that was removed, a channel that does
// not exist, a deletion that nobody asked for.
//
// A Store is safe for concurrent use; it starts no goroutine.
package store
