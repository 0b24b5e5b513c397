//go:build !broken

package broken

// Build says whether this is such a build.
const Build = false

// Drops reports whether an event, given as its JSON, is to be kept from a subscription.
func Drops([]byte) bool { return false }

// Repeats reports whether it is to be delivered again.
func Repeats([]byte) bool { return false }

// Leaks reports whether it is to be delivered to who may not have it.
func Leaks([]byte) bool { return false }

// Closes reports whether a subscription that it is delivered to is to be ended.
func Closes([]byte) bool { return false }
