// Package supervise owns child processes: it starts them, notices when they die, starts them again with a
// growing pause, and stops them.
//
// Each child gets its own process group, so that a Ctrl-C at the terminal reaches only the supervisor,
// which then stops children in the order it wants; on Linux the kernel kills the children when the
// supervisor dies, however it dies. The package must never signal a process that it did not start, nor
// one that it has already waited for (its id may belong to somebody else by then).
//
// Goroutines: one, tied to its operating system thread, forks (the kernel ties the death signal to the
// thread that forked, not to the process); one per child waits for it and restarts it. The methods may
// be called by any goroutine.
package supervise
