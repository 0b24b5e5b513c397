package policy

import (
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Reply is the place of a message in a thread (NIP-10, marked e tags).
type Reply struct {
	// Parent is the event that is answered.
	Parent nostr.ID
	// Root is the thread's first event, which is in no thread itself. Until Settle it is what the message says,
	// zero if it says nothing.
	Root nostr.ID
	// Depth is 1 for an answer to the root and one more for each step; 0 until Settle.
	Depth int
	// Broadcast is set if the message is shown among those of its channel besides.
	Broadcast bool
}

// InThread reports whether the message is shown in its thread alone, and not among those of its channel.
func (r *Reply) InThread() bool { return r.Depth > 0 && (!r.Broadcast || r.Depth > 1) }

// MaxDepth is how deep a thread may be.
const MaxDepth = 100

// MaxParticipants is how many authors the relay names in the summary of a thread, and SummaryBytes an upper estimate of
// that summary's JSON.
const (
	MaxParticipants = 10
	SummaryBytes    = 1536
)

// maxSummaries is of how many threads the relay says how many replies one deletion has left.
const maxSummaries = 32

// Summaries is how many threads the relay may have to summarise because of the deletion.
func (d *Deletion) Summaries() int { return min(len(d.IDs), maxSummaries) }

// Answers about threads.
var (
	// noParent answers a reply to what is missing, deleted, in another channel or in none.
	noParent      = invalid("reply parent not found")
	wrongRoot     = invalid("root tag does not match thread ancestry")
	threadTooDeep = invalid("thread depth limit exceeded")
)

// IsMessage reports whether events of the kind are messages of a channel, which threads are made of.
func IsMessage(k nostr.Kind) bool {
	switch k {
	case nostr.KindChat, nostr.KindStreamMessageV2, nostr.KindMessageDiff, nostr.KindForumPost, nostr.KindForumComment:
		return true
	default:
		return false
	}
}

// marked returns the value of the first e tag with a marker, and whether there is one.
func marked(tags nostr.Tags, marker string) (string, bool) {
	for t := range tags.All("e") {
		if len(t) >= 4 && t[3] == marker {
			return t[1], true
		}
	}
	return "", false
}

// parseReply reads a message's place in a thread. A root alone is a reference and no reply.
func (c *Candidate) parseReply() Verdict {
	parent, ok := marked(c.Event.Tags, "reply")
	if !ok {
		return Verdict{}
	}
	r := &Reply{}
	var err error
	if r.Parent, err = nostr.ParseID(parent); err != nil {
		return noParent
	}
	if root, ok := marked(c.Event.Tags, "root"); ok {
		if r.Root, err = nostr.ParseID(root); err != nil {
			return wrongRoot
		}
	}
	broadcast, _ := c.Event.Tags.First("broadcast")
	r.Broadcast = broadcast == "1"
	c.Reply = r
	return Verdict{}
}

// place finds where in a thread a reply is. A parent that the relay knows no thread of is a root; or it is from
// before threads were kept, or only refers to a root, and then it names that in an e tag.
func (c *Candidate) place(st *State) (Reply, Verdict) {
	r := *c.Reply
	parent, ok := st.target(c.Community, r.Parent)
	if !ok || parent.Channel != c.Channel {
		return r, noParent
	}
	root, depth := parent.Root, parent.Depth+1
	if parent.Depth == 0 {
		root = r.Parent
		if named, ok := st.target(c.Community, r.Root); ok && named.Channel == c.Channel && named.Depth == 0 && st.RootNamed[c.Key()] {
			root, depth = r.Root, 2
		}
	}
	switch {
	case !r.Root.IsZero() && r.Root != root:
		return r, wrongRoot
	case depth > MaxDepth:
		return r, threadTooDeep
	}
	r.Root, r.Depth = root, depth
	return r, Verdict{}
}
