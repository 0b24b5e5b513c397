// Package private runs a Postgres of the process's own, from the machine's binaries, inside one directory
// and reachable only through a unix socket there. The all-in-one uses it when it is given no database,
// and tools/pgtmp makes throw-away servers with it.
//
// Layout of the directory:
//
//	lock   held by the process for as long as the Cluster runs (pkg/datadir)
//	data   Postgres's own (PGDATA)
//	run    the socket; a link to a directory under /tmp when the path would be too long for one
//
// Postgres refuses to run as root, so root starts it as user postgres, or nobody. It runs in a process
// group of its own, because Ctrl-C is for the process that serves clients, which then stops Postgres last.
// When the process dies without stopping it, Linux tells Postgres to shut down; on other systems, and if
// that failed, the next Start finds it and stops it first. The package must never delete data, and never
// run two servers on one directory.
//
// One goroutine per Cluster waits for the server, and starts it again if it may; the methods of Cluster may be called from any.
// The package works on Unix systems only.
package private
