// Package access decides what a reader may see.
//
// It owns the rule in its two forms, which must say the same: as SQL that is part of every statement on
// events (so that the rule and the data come from one snapshot), and as Decide, which answers for many
// keys at once from rows of one snapshot. The rule: an archived community admits nobody, an open one everybody, a closed one its
// members and, unless it refuses them, their agents (view ingest.admitted); a channel's events are for everybody
// admitted if it is open, for its members if it is private; a member of a channel is a key that satisfies all of this by
// itself, and a key that is banned, or whose owner is (view ingest.barred), satisfies nothing; events of kinds that
// are not for everybody are for their audience (pkg/nostr/kind); what a key wrote, or was wrapped for it, until it asked to vanish is for nobody. What is hidden and what does not exist are never told apart.
//
// The package does no I/O and holds no state. It is safe for concurrent use.
package access

import (
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
)

// Reader is who reads, and when.
type Reader struct {
	// Community is the tenant.
	Community tenant.ID
	// Keys are the authenticated keys, at most 16; what one of them may read, the reader may read.
	Keys []nostr.PubKey
	// Now is the time in Unix seconds: what has expired by then is not shown (NIP-40).
	Now int64
}

// Topic is the access state of one topic, read in one snapshot.
type Topic struct {
	// Exists is false when there is no such community, or when it is archived, which is the same for everybody.
	Exists bool
	// Open is true when the community admits everybody.
	Open bool
	// CommunityVersion is the community's access version.
	CommunityVersion uint64
	// Members are those of the keys asked about that are members of the community, or may use it like members because
	// their owners are.
	Members []nostr.PubKey
	// Banned are those of the keys asked about that are banned from the community, by themselves or with their owner.
	Banned []nostr.PubKey
	// Agents are those of the keys asked about that are agents, of the global topic only.
	Agents []Agent
	// Moderators are those of the keys asked about that are owners or admins of the community.
	Moderators []nostr.PubKey
	// Channel is the state of the topic's channel, nil if it does not exist or the topic is global.
	Channel *Channel
	// Standby is true when the snapshot is that of a replica, which may lag behind.
	Standby bool
	// Time is when it was read, in microseconds since the Unix epoch by the database's clock: what ends at a time had ended if
	// it ended by then.
	Time int64
	// Ends are those of the keys asked about for which something ends later that counts here.
	Ends []End
}

// End is when something ends that decides what a key may, in microseconds since the Unix epoch.
type End struct {
	Key nostr.PubKey
	At  int64
}

// Agent is a key that another one owns (NIP-OA).
type Agent struct{ Key, Owner nostr.PubKey }

// Channel is the access state of one channel.
type Channel struct {
	// Open is true when everybody admitted to the community may read it.
	Open bool
	// Version is the channel's access version.
	Version uint64
	// Members are those of the keys asked about that are members of the channel.
	Members []nostr.PubKey
}

// Decide answers for each of keys, in order, whether it may read the topic: the channel with this h value,
// the global topic if h is empty.
func (t *Topic) Decide(h string, keys []nostr.PubKey) []bool {
	allowed := make([]bool, len(keys))
	if !t.Exists || (h != "" && t.Channel == nil) {
		return allowed
	}
	admitted, banned := set(t.Open, t.Members), set(false, t.Banned)
	readable := set(true, nil)
	if h != "" {
		readable = set(t.Channel.Open, t.Channel.Members)
	}
	for i, k := range keys {
		allowed[i] = !banned(k) && admitted(k) && readable(k)
	}
	return allowed
}

// Moderate answers for each of keys, in order, whether it moderates the community.
func (t *Topic) Moderate(keys []nostr.PubKey) []bool {
	moderates, banned := set(false, t.Moderators), set(false, t.Banned)
	answer := make([]bool, len(keys))
	if !t.Exists {
		return answer
	}
	for i, k := range keys {
		answer[i] = moderates(k) && !banned(k)
	}
	return answer
}

// Until answers for each of keys, in order, when what Decide and Moderate say of it may change although no version does: its
// attestation ends, or a ban of it or of its owner. 0 is never.
func (t *Topic) Until(keys []nostr.PubKey) []int64 {
	ends := make(map[nostr.PubKey]int64, len(t.Ends))
	for _, e := range t.Ends {
		ends[e.Key] = e.At
	}
	until := make([]int64, len(keys))
	for i, k := range keys {
		until[i] = ends[k]
	}
	return until
}

// set returns the membership test of everybody, or of the listed keys.
func set(everybody bool, keys []nostr.PubKey) func(nostr.PubKey) bool {
	if everybody {
		return func(nostr.PubKey) bool { return true }
	}
	in := make(map[nostr.PubKey]struct{}, len(keys))
	for _, k := range keys {
		in[k] = struct{}{}
	}
	return func(k nostr.PubKey) bool {
		_, ok := in[k]
		return ok
	}
}

// Least is the oldest state that an answer may come from.
type Least struct {
	// Community and Channel are access versions.
	Community, Channel uint64
	// Time is in microseconds since the Unix epoch, by the clock of the database that answers.
	Time int64
}

// Behind reports whether the topic was read from a state older than asked for, so that the
// answer may only come after waiting. A primary has every version: one that anybody knows of was
// committed before. There a lower version, or none, means that the channel was deleted, or made anew. Clocks, of a replica and
// of a primary that took over, may be behind the one by which the time was said.
func (t *Topic) Behind(least Least) bool {
	if t.Time < least.Time {
		return true
	}
	if !t.Standby {
		return false
	}
	have := uint64(0)
	if t.Channel != nil {
		have = t.Channel.Version
	}
	return t.CommunityVersion < least.Community || have < least.Channel
}

// maxChannel is the length of the longest channel id, as ingest.channels.h has it.
const maxChannel = 64

// IsChannel reports whether h can be a channel's id: 1 to 64 of A–Z, a–z, 0–9, _ and -. Other text names
// no channel, and may be what Postgres does not take as text (a NUL).
func IsChannel(h string) bool {
	for i := range len(h) {
		switch c := h[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return h != "" && len(h) <= maxChannel
}
