package access

import (
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Versions are the access versions of a community and one of its channels; Channel is 0 on the global
// topic.
type Versions struct {
	Community uint64
	Channel   uint64
	// Time is when they were read, in microseconds since the Unix epoch by the database's clock; 0 if that is not known. What
	// ends at a time takes no new version with it.
	Time int64
}

// Covers reports whether a state of versions v is at least as new as one of versions w, but for what ends at a time.
func (v Versions) Covers(w Versions) bool {
	return v.Community >= w.Community && v.Channel >= w.Channel
}

// Grant is what is known of one key on one topic.
type Grant struct {
	key       nostr.PubKey
	uses      int
	known     bool
	allowed   bool
	had       bool // was allowed once
	moderates bool
	at        Versions
	until     int64    // what was said holds for what is read before this time; 0 for as long as the versions stay
	asked     Versions // the Min of the question that was answered last; above at if the channel was deleted
}

// Key returns the key that the grant is about.
func (g *Grant) Key() nostr.PubKey { return g.key }

// Fresh reports whether the verdict is good for an envelope committed under versions v.
func (g *Grant) Fresh(v Versions) bool { return g.known && g.at.Covers(v) && v.precede(g.until) }

// precede reports whether what was said until a time holds for v.
func (v Versions) precede(until int64) bool { return until == 0 || v.Time < until }

// Allowed reports whether the key may read the topic, as far as is known.
func (g *Grant) Allowed() bool { return g.known && g.allowed }

// Revoked reports whether the key could read the topic once, and may not any more.
func (g *Grant) Revoked() bool { return g.known && g.had && !g.allowed }

// Denied reports whether the key may not read the topic, as far as is known.
func (g *Grant) Denied() bool { return g.known && !g.allowed }

// Moderates reports whether the key is an owner or admin of the community, as far as is known.
func (g *Grant) Moderates() bool { return g.known && g.moderates }

// Topic holds the grants of the keys that are subscribed to one topic.
type Topic struct {
	// Community and Channel name the topic; Channel is empty for the global one.
	Community int64
	Channel   string

	grants map[nostr.PubKey]*Grant
	unsure int // grants without any verdict
}

// NewTopic returns a topic without grants.
func NewTopic(community int64, channel string) *Topic {
	return &Topic{Community: community, Channel: channel, grants: make(map[nostr.PubKey]*Grant)}
}

// Acquire returns the grant of a key, unknown at first, and counts the use.
func (t *Topic) Acquire(key nostr.PubKey) *Grant {
	g := t.grants[key]
	if g == nil {
		g = &Grant{key: key}
		t.grants[key] = g
		t.unsure++
	}
	g.uses++
	return g
}

// Release ends one use. The verdict on a key that nobody uses is forgotten.
func (t *Topic) Release(g *Grant) {
	g.uses--
	if g.uses > 0 {
		return
	}
	delete(t.grants, g.key)
	if !g.known {
		t.unsure--
	}
}

// Len returns the number of keys.
func (t *Topic) Len() int { return len(t.grants) }

// Unsure reports whether there are keys on which there is no verdict at all.
func (t *Topic) Unsure() bool { return t.unsure > 0 }

// Stale returns up to limit keys whose verdicts are not good for versions v: those of must first, then
// others of the topic that would have to be asked for next, unless they were: of a channel that was deleted there is no
// newer verdict.
func (t *Topic) Stale(v Versions, must []*Grant, limit int) []nostr.PubKey {
	var keys []nostr.PubKey
	taken := make(map[nostr.PubKey]struct{}, len(must))
	add := func(g *Grant) bool {
		if _, again := taken[g.key]; !again && !g.Fresh(v) {
			taken[g.key] = struct{}{}
			keys = append(keys, g.key)
		}
		return len(keys) < limit
	}
	for _, g := range must {
		if !add(g) {
			return keys
		}
	}
	for _, g := range t.grants {
		if g.known && g.asked.Covers(v) && v.precede(g.until) {
			continue
		}
		if !add(g) {
			return keys
		}
	}
	return keys
}

// Apply takes over an answer to a question about keys that Stale returned. Keys that left meanwhile are
// skipped. The verdicts are as old as the answer says, also when that is older than asked for (see
// Answer): they are then good for nothing but what the question was about. It reports whether a key that could
// read the topic may not any more.
func (t *Topic) Apply(a Answer) (revoked bool) {
	for i, key := range a.Keys {
		g := t.grants[key]
		if g == nil {
			continue
		}
		if !g.known {
			t.unsure--
		}
		revoked = revoked || (g.allowed && !a.Allowed[i])
		g.known, g.allowed, g.moderates, g.at, g.until = true, a.Allowed[i], a.Moderator[i], a.At, a.Until[i]
		g.had, g.asked = g.had || g.allowed, a.Min
	}
	return revoked
}
