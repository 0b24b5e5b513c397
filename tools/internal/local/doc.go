// Package local runs the split topology on this machine: every service its own process on loopback, several
// of each, one NATS server and one Postgres. tools/cluster runs it for people, tools/chaos to break it.
//
// It owns the processes' data directory while it runs. It must never touch a process that it did not start.
// A Cluster is started and closed by one goroutine; what acts on single processes may be called by any in
// between.
package local
