package client

import "github.com/apiary-relay/apiary/pkg/nostr"

// answers reports whether an event is what a filter asks for, so that a relay's answer shows nothing else. Besides what
// matches, that is the presence of an author, which the relay signs in its own name: kind 20001 with the user in its p tag, also
// where a snapshot (40902) was asked for. All other conditions hold for it as for any event. Which key is the relay's
// only the relay could say, so that it is not asked: the line shows who has signed.
func answers(f *nostr.Filter, e *nostr.Event) bool {
	if f.Match(e) {
		return true
	}
	if e.Kind != nostr.KindPresence {
		return false
	}
	p, _ := e.Tags.First("p")
	subject, err := nostr.ParsePubKey(p)
	if err != nil {
		return false
	}
	about := *e
	about.PubKey = subject
	if f.Match(&about) {
		return true
	}
	about.Kind = nostr.KindPresenceSnapshot
	return f.Match(&about)
}
