// Package naive is a relay in memory that does what the NIPs say in the most obvious way, for the tests of
// the suite: the suite must find nothing wrong with it, and must find each of its Faults. It is no relay to
// be used: it knows one lock, goes through everything it has for every question, and bounds little.
//
// Every connection has the goroutine of its HTTP request. All state is guarded by the relay's lock, which is
// also held while frames are written, so that their order is that of what they tell.
package naive
