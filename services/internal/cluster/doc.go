// Package cluster runs a whole Apiary inside a test: real services with their own pools, connections and
// gRPC servers over memory, a database and a NATS server of the test's own, and real sockets for clients.
// The all-in-one is run in the same way, so that one suite runs on both topologies.
//
// A node can be killed: everything in it stops at once, without draining, and its connections break. It can
// be started again, as a process would be, from nothing but its configuration. What only a real process can
// show (kill -9, frozen processes) is for tools/cluster.
//
// Methods that take a testing.TB fail that test and are called from its goroutine. Nodes run in goroutines
// of the cluster, which end with the test that made it.
package cluster
