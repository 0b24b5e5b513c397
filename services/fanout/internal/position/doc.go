// Package position says where in the streams a partition, a subscription or a gateway stands.
//
// It owns the order of positions, their form on the wire, and the memory of recently seen events: an
// envelope is a repeat if its position is not after the last one (the bus delivered it again), or if its
// event was seen shortly before (the outbox published it again after the stream had forgotten the message
// id). The package is pure: no I/O, no goroutines. Position and Cursor are values; a Recent has one
// owner and no lock.
package position
