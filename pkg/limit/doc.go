// Package limit holds rates and budgets with bounded memory: token buckets by key (a connection, a
// public key, an address), a budget of bytes shared by a whole process, and places that keys share fairly.
//
// It owns no policy: callers choose keys, rates and what happens to the refused. Nothing here starts a
// goroutine, or reads a clock behind the caller's back, but Fair, which measures and has timers; all types are safe for
// concurrent use.
package limit
