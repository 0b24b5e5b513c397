// Package hub is what connections share: the registry that leads from a fan-out handle to its
// subscription, the event whose frames all recipients share, and the set of open connections with
// its limit and its drain.
//
// It must never do I/O and never wait for a connection, except in Drain. Registry and Conns may be
// used by any goroutine; an Event belongs to the goroutine that delivers it, while the frames it has
// made are immutable and go anywhere.
package hub
