// Package broken makes live delivery wrong on purpose, in builds with the tag "broken" and nowhere else, so that
// tools which look for faults can be tried on faults that are there (tools/chaos). In all other builds, Build is the
// constant false and the compiler drops what is behind it.
//
// Such a build goes wrong for the events whose JSON contains one of the marks, once for each mark in the life of
// a process, and does not end the subscriptions of who is removed from a channel. The functions may be called by
// any goroutine.
package broken

// The marks, to be put into the content of an event.
const (
	// MarkDrop has the event kept from one subscription that should have it.
	MarkDrop = "broken-drop"
	// MarkRepeat has it delivered to one subscription twice.
	MarkRepeat = "broken-repeat"
	// MarkLeak has it delivered to one subscription that may not have it.
	MarkLeak = "broken-leak"
	// MarkClose has it delivered to one subscription that is then ended as if something had been lost.
	MarkClose = "broken-close"
)
