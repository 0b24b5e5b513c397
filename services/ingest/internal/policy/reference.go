package policy

import (
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// referenceRule is what a kind of event asks of the event of its channel that it is about.
type referenceRule struct {
	// unnamed answers an event that names none in an e tag; the zero Verdict takes it.
	unnamed Verdict
	// missing answers one whose target is missing, deleted, in another channel or in none.
	missing Verdict
	// standing is set when judge has to know where the author stands to the target.
	standing bool
	// judge decides on the target, nil takes any.
	judge func(*Candidate, Target, Standing) Verdict
}

var (
	// notEditable answers also an edit of what somebody else wrote, and in a channel that the editor cannot see.
	notEditable = invalid("edit target not found or not editable by you")
	noTarget    = invalid("target event not found")
)

var references = map[nostr.Kind]referenceRule{
	nostr.KindMessageEdit: {
		unnamed:  invalid("edit must reference a target event via e tag"),
		missing:  notEditable,
		standing: true,
		judge: func(c *Candidate, t Target, s Standing) Verdict {
			if !IsMessage(t.Kind) || (t.PubKey != c.Event.PubKey && !s.OwnsAuthor) {
				return notEditable
			}
			return Verdict{}
		},
	},
	nostr.KindForumVote: {
		unnamed: invalid("vote must reference a target event via e tag"),
		missing: invalid("vote target event not found"),
		judge: func(_ *Candidate, t Target, _ Standing) Verdict {
			if t.Kind != nostr.KindForumPost && t.Kind != nostr.KindForumComment {
				return invalid("vote target must be a forum post or comment")
			}
			return Verdict{}
		},
	},
	nostr.KindJobAccepted:     jobAnswer,
	nostr.KindJobProgress:     jobAnswer,
	nostr.KindJobResult:       jobAnswer,
	nostr.KindJobError:        jobAnswer,
	nostr.KindJobCancel:       jobCancel,
	nostr.KindMessagePin:      {missing: noTarget},
	nostr.KindMessageBookmark: {missing: noTarget},
	nostr.KindMessageReminder: {missing: noTarget},
}

// parseReference reads which event of its channel an event is about: the one that its first e tag with an id names.
func (c *Candidate) parseReference() Verdict {
	rule, ok := references[c.Event.Kind]
	if !ok {
		return Verdict{}
	}
	for t := range c.Event.Tags.All("e") {
		if id, err := nostr.ParseID(t.Value()); err == nil {
			c.Reference = &id
			return Verdict{}
		}
	}
	return rule.unnamed
}

// Stands reports whether the State has to know where the candidate's author stands to its target.
func (c *Candidate) Stands() bool { return c.Reference != nil && references[c.Event.Kind].standing }

func (c *Candidate) admitReference(st *State) Verdict {
	rule := references[c.Event.Kind]
	t, ok := st.target(c.Community, *c.Reference)
	switch {
	case !ok || t.Channel != c.Channel:
		return rule.missing
	case rule.judge != nil:
		return rule.judge(c, t, st.Standings[c.Key()])
	}
	return Verdict{}
}

// hideChannel turns the answer to who cannot see the channel into that of an edit whose target is missing.
func hideChannel(c *Candidate, v Verdict) Verdict {
	if v == NotChannelMember && c.Event.Kind == nostr.KindMessageEdit {
		return notEditable
	}
	return v
}
