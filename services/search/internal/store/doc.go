// Package store runs search's statements.
//
// It owns every way in which search touches Postgres: stored queries and counts (several statements in
// one snapshot, one round trip), communities by host, the access state of a topic, lists for moderators, and
// the documents of the text index, which are all that it writes. It decides
// nothing: what is read comes from package plan, who may read is part of those statements.
//
// A connection is held only while Postgres works, never while a client reads. Once a statement is on its
// way it is not cancelled when the caller leaves: that would cost the connection, and the statement
// timeout bounds the work.
//
// A statement locks (shared, against changes of the schema only) every monthly partition it might open: some
// two to five locks per month of events for each connection at work. Whoever keeps years of events, or runs
// many replicas, raises max_locks_per_transaction in Postgres; when it is exhausted, requests are refused
// as Overloaded.
//
// All methods are safe for concurrent use and start no goroutines.
package store
