// Package topology says which processes make a cluster on one machine: their names, programs, arguments,
// addresses and log files, and how the result is written down for people and for tools.
//
// Every address is a loopback one, fixed for the life of the cluster, so that a process that is started
// again is found by the others where it was. The package starts nothing. It has no goroutines.
package topology
