package policy

import (
	"encoding/json"
	"slices"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Commands of conversations (direct messages) as they are asked for, by kind. A conversation is a channel of type
// Direct. Who is in it never changes, so there is one for each set of participants: whoever wants others in it opens
// another one. It has neither owners nor admins.
type (
	// OpenConversation is kind 41010.
	OpenConversation struct {
		// Others are whom the author wants to talk to: 1 to MaxInConversation-1 keys, each once, without the author's.
		Others []nostr.PubKey
	}
	// AddToConversation is kind 41011: its author opens the conversation of all who are in another one and of some
	// more. The other one stays as it is.
	AddToConversation struct {
		// H is the other conversation.
		H string
		// More are as in OpenConversation, and may be in the other conversation.
		More []nostr.PubKey
	}
	// HideConversation is kind 41012: its author does not want to see a conversation among its own until it opens it
	// again. Nobody else learns of it, and what is said in it changes nothing.
	HideConversation struct {
		// H is the conversation.
		H string
	}
)

const (
	// MaxInConversation is how many keys may be in a conversation.
	MaxInConversation = 9
	// MaxHidden is how many conversations of a key may be hidden at a time: all are named by one event.
	MaxHidden = 1000
)

// Verdicts on conversations.
var (
	// NotInConversation answers for a conversation that is not the author's, and for one that does not exist: the two
	// must not be told apart.
	NotInConversation = Verdict{fault.Restricted, "not a member of this DM"}
	// TooManyParticipants answers who would talk to more than MaxInConversation-1 others.
	TooManyParticipants = invalid("pubkeys must contain at most 8 other participants (9 total)")
	// TooManyHidden answers who has hidden MaxHidden conversations.
	TooManyHidden = Verdict{fault.Restricted, "you have hidden as many conversations as you may"}

	notDirect = invalid("channel is not a DM")
)

func parseOpenConversation(c *Candidate) (any, Verdict) {
	others, v := parseParticipants(c)
	return &OpenConversation{others}, v
}

func parseAddToConversation(c *Candidate) (any, Verdict) {
	h, v := parseConversation(c)
	if !v.Accepted() {
		return nil, v
	}
	more, v := parseParticipants(c)
	return &AddToConversation{h, more}, v
}

func parseHideConversation(c *Candidate) (any, Verdict) {
	h, v := parseConversation(c)
	return &HideConversation{h}, v
}

// parseConversation reads which conversation a command is about. The command itself is in no channel: it concerns
// nobody but its author.
func parseConversation(c *Candidate) (string, Verdict) {
	h, _ := c.Event.Channel()
	if !nostr.ValidChannelID(h) {
		return "", invalid("missing or invalid h tag")
	}
	return h, Verdict{}
}

// parseParticipants reads whom an author wants to talk to.
func parseParticipants(c *Candidate) ([]nostr.PubKey, Verdict) {
	var others []nostr.PubKey
	for t := range c.Event.Tags.All("p") {
		key, err := nostr.ParsePubKey(t.Value())
		switch {
		case err != nil:
			return nil, invalid("missing or invalid p tag")
		case key == c.Event.PubKey, slices.Contains(others, key):
			continue
		case len(others) == MaxInConversation-1:
			return nil, TooManyParticipants
		}
		others = append(others, key)
	}
	if len(others) == 0 {
		return nil, invalid("pubkeys must contain at least 1 other participant")
	}
	return others, Verdict{}
}

// Judge decides whether somebody may build on a conversation.
func (*AddToConversation) Judge(g Group) Verdict { return judgeConversation(g) }

// Judge decides whether somebody may hide a conversation.
func (*HideConversation) Judge(g Group) Verdict { return judgeConversation(g) }

func judgeConversation(g Group) Verdict {
	switch {
	case g.hidden():
		return NotInConversation
	case g.Type != Direct:
		return notDirect
	}
	return Verdict{}
}

// Opened returns what the author is told who has opened a conversation: its id, and whether it is new.
func Opened(h string, created bool) Verdict {
	answer, _ := json.Marshal(struct {
		Channel string `json:"channel_id"`
		Created bool   `json:"created"`
	}{h, created})
	return Verdict{Message: "response:" + string(answer)}
}

// Hidden is what the author is told who has hidden a conversation.
var Hidden = Verdict{Message: "response:{}"}
