// Package load is the clients that use the relay while it is being broken: publishers, subscribers, and an owner
// who removes members from private channels and adds them again. It writes down what they did and saw in a
// checker.Log, and judges nothing.
//
// They do what well-behaved clients do. A client whose connection has ended connects to the next gateway, as through
// a balancer, and asks for its subscriptions again with a since that reaches back beyond the newest event it has; so
// does one whose subscription the relay has closed, unless it was removed from the channel: then it waits until it is
// a member again. An event without an OK is sent again, the same one, until it has one or is too old.
//
// # Goroutines
//
// One per subscriber, which owns its connection and all that it knows; one per publisher and one per event on its way;
// one per private channel whose members change. Prepare starts the subscribers, which end with Close; Use waits for
// all others.
package load
