// Package havoc does to a cluster what a scenario says, and makes it whole again.
//
// It tells the checker what it does, before it begins and when it is done, because that explains why connections
// end. It starts a goroutine for each step, and waits for all of them.
package havoc
