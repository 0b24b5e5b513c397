// Package scenario reads what is to be done to a cluster, and when, from small YAML files.
//
//	about: Fan-out nodes die one after the other.
//	load: {subscribers: 500, rate: 36}      # what is not said has its default, see Load
//	steps:
//	  - {every: 5s, kill: next fanout}
//	  - {at: 10s, pause: fanout-1, for: 10s}
//	  - {at: 5s, every: 20s, cut: gateway to next fanout, for: 5s}
//
// Every step is one action on its target, once at a time from the first event on, or every so often. Time is that of
// the run; steps that begin at the same moment, or while others go on, are done at once. What is still going on at the
// end of the run is ended there.
//
//	kill      kill -9; the process is started again at once
//	pause     SIGSTOP, and SIGCONT after "for"
//	roll      SIGTERM, then start again and wait until it is ready, one process after the other
//	add       start a process that does not run: a spare fan-out node, or one that was removed
//	remove    SIGTERM, and stay away
//	cut       reset the connections "from to to", and all new ones, for "for"
//	hold      let no byte through on them, as when packets are lost, for "for"
//
// Two steps should not cut or hold the same link at a time: the end of either heals it.
//
// A target is a process, such as fanout-2, nats or postgres; a service, such as fanout, which means all of its
// processes; or "next" and a service, which means one of those that run, in turn. The package does nothing but
// read and has no goroutines.
package scenario
