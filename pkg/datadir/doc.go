// Package datadir owns the directory in which a program that keeps state on one machine lives: where it
// is by default, who holds it, and how private files in it are made.
//
// A directory is held by an advisory lock on a file in it, which the kernel gives back when the holder
// dies in whatever way, so there is nothing stale to clean up. The package must never remove anything it
// finds in the directory (what Open has made, Discard removes), and it must never run two holders at once. A Dir is used by the goroutine that
// opened it; Path may be called by any.
package datadir
