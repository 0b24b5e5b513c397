// Package index finds the subscriptions of one topic that an event matches, at a cost that grows with
// the matches and hardly with the subscriptions.
//
// It owns the inverted index: every filter is filed under the values of its most selective condition
// (ids, then #p, then another tag, then authors, then kinds; what has none of them is filed under
// "everything"), together with its kinds where that stays small. An event is looked up by its own
// values, and each candidate is verified with the rest of its filter, so that the result is exactly
// what Filter.Match says of every filter. since and until are verified, limit is ignored.
//
// An Index has one owner: it has no lock, no goroutine and does no I/O, and must never be shared. It
// never copies values; what they mean is its owner's business. It must not decide who may read: access
// is checked after matching.
package index
