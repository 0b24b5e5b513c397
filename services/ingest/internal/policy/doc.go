// Package policy decides what may be written. It owns the order of the checks, their texts and the table
// of kinds that no client may submit. It must never touch the database or the clock: the time is an
// argument, and what a decision needs to know of communities and channels comes in a State that the
// store reads inside the transaction.
//
// There are two steps. CheckKind and Check need only the event and the submission, and may run anywhere, at any
// time. Admit needs the State and must run in the transaction that stores the event, under the locks
// that keep the State true until the commit.
//
// Everything is pure and safe for concurrent use as long as the arguments are not changed meanwhile.
package policy
