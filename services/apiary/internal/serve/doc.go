// Package serve runs the all-in-one as a process on one machine: it holds the data directory, makes what is
// missing in it, brings up Postgres and NATS, runs the services, and tells the person at the terminal what
// to do next.
//
// Layout of the data directory:
//
//	lock           held for as long as the process lives (pkg/datadir)
//	postgres/      the private cluster, when no database was given (pkg/postgres/private)
//	nats/          JetStream's files
//	control/       the unix sockets of the operator's commands, for this user only
//	relay.key      the key with which the relay signs; secret
//	operator.key   the key of the operator, owner of the first community; secret
//	admin.addr     where the admin listener is, for apiary healthcheck
//
// It starts in this order and stops in the reverse one, all within ten seconds of being asked to. It must
// never print a secret, and never delete data. A start that is refused before the database is this process's, because of its
// settings or because something is in use, removes what it has made and nothing else. The goroutine that calls Run owns everything here; the
// services have their own.
package serve
