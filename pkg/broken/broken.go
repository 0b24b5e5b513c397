//go:build broken

package broken

import (
	"bytes"
	"sync/atomic"
)

// Build says whether this is such a build.
const Build = true

var dropped, repeated, leaked, closed atomic.Bool

// Drops reports whether an event, given as its JSON, is to be kept from a subscription.
func Drops(raw []byte) bool { return once(raw, MarkDrop, &dropped) }

// Repeats reports whether it is to be delivered again.
func Repeats(raw []byte) bool { return once(raw, MarkRepeat, &repeated) }

// Leaks reports whether it is to be delivered to who may not have it.
func Leaks(raw []byte) bool { return once(raw, MarkLeak, &leaked) }

// Closes reports whether a subscription that it is delivered to is to be ended.
func Closes(raw []byte) bool { return once(raw, MarkClose, &closed) }

func once(raw []byte, mark string, done *atomic.Bool) bool {
	return bytes.Contains(raw, []byte(mark)) && done.CompareAndSwap(false, true)
}
