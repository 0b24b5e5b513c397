// Package suite runs conformance cases against a relay and reports what they found. It owns the shape of a
// case, the bounded parallelism, the patience with the relay and the table; it must never know a rule of a
// NIP, except how to authenticate where a relay demands it.
//
// A case is a function that uses its T as a test uses testing.T: a method that finds something else than the
// NIP says ends the case at once (with runtime.Goexit, so that what was deferred runs). Each case has a
// goroutine of its own, and only that goroutine may call methods that end the case; what runs beside it uses
// the connections of package client, whose methods return errors. Everything that a case opened is closed
// when it ends, and Run waits for all of it.
package suite
