// Package access decides who may get an event, without a lookup per delivery (P4, P5).
//
// It owns the verdicts of a topic: for every key subscribed there, whether it may read the topic,
// whether it moderates the community, and under which access versions search said so. A verdict is good for an envelope when it is at least as
// new as the versions the envelope was committed under, and was read before the time at which the verdict ends by itself, if it
// does (the end of an attestation or of a ban has no version); an older or missing one must be asked for before
// delivering. Times are compared as the database's clock said them, no node looks at its own. Whom an event is for, of those who may read its topic, is not asked here: the event itself says it
// (kind.AudienceOf).
//
// What is not known is not allowed. A Topic has one owner: no lock, no I/O; Ask is the only function
// that calls search, blocks, and may run on any goroutine, because it touches no Topic.
package access
