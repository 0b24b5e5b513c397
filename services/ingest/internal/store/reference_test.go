package store

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Edits, votes, pins, bookmarks and reminders are about an event of their channel.
func TestReferences(t *testing.T) {
	f := newFixture(t)
	f.channel("general")
	f.channel("other")
	f.channel("secret", nostrtest.Tag("private"))
	in := func(kind nostr.Kind, author, h, content string) *policy.Candidate {
		return f.candidate(author, nostrtest.Kind(kind), nostrtest.Channel(h), nostrtest.Content(content))
	}
	mine, hers := in(nostr.KindChat, "alice", "general", "mine"), in(nostr.KindStreamMessageV2, "bob", "general", "hers")
	post, comment := in(nostr.KindForumPost, "bob", "general", "post"), in(nostr.KindForumComment, "bob", "general", "comment")
	canvas := in(nostr.KindCanvas, "alice", "general", "canvas")
	elsewhere, hidden, deleted := in(nostr.KindChat, "alice", "other", "x"), in(nostr.KindChat, "owner", "secret", "x"), in(nostr.KindChat, "alice", "general", "deleted")
	f.accept(mine, hers, post, comment, canvas, elsewhere, hidden, deleted, f.candidate("alice", deletion(e(deleted))...))
	missing := nostrtest.Tag("e", strings.Repeat("ab", 32))
	refused := func(msg string) policy.Verdict { return policy.Verdict{Reason: fault.Invalid, Message: msg} }
	notEditable := refused("edit target not found or not editable by you")
	noVote, noTarget := refused("vote target event not found"), refused("target event not found")
	for _, c := range []struct {
		name   string
		kind   nostr.Kind
		h      string
		target nostrtest.Option
		want   policy.Verdict
	}{
		{"an edit", nostr.KindMessageEdit, "general", e(mine), policy.Verdict{}},
		{"an edit of another's", nostr.KindMessageEdit, "general", e(hers), notEditable},
		{"an edit of what is no message", nostr.KindMessageEdit, "general", e(canvas), notEditable},
		{"an edit of what is missing", nostr.KindMessageEdit, "general", missing, notEditable},
		{"an edit of what is deleted", nostr.KindMessageEdit, "general", e(deleted), notEditable},
		{"an edit of what is hidden", nostr.KindMessageEdit, "general", e(hidden), notEditable},
		{"an edit of one's own elsewhere", nostr.KindMessageEdit, "general", e(elsewhere), notEditable},
		{"an edit in a hidden channel", nostr.KindMessageEdit, "secret", e(hidden), notEditable},
		{"an edit in a missing channel", nostr.KindMessageEdit, "nowhere", e(mine), notEditable},
		{"a vote", nostr.KindForumVote, "general", e(post), policy.Verdict{}},
		{"a vote for a comment", nostr.KindForumVote, "general", e(comment), policy.Verdict{}},
		{"a vote for a message", nostr.KindForumVote, "general", e(mine), refused("vote target must be a forum post or comment")},
		{"a vote for what is missing", nostr.KindForumVote, "general", missing, noVote},
		{"a vote for what is hidden", nostr.KindForumVote, "general", e(hidden), noVote},
		{"a pin", nostr.KindMessagePin, "general", e(hers), policy.Verdict{}},
		{"a pin of what is hidden", nostr.KindMessagePin, "general", e(hidden), noTarget},
		{"a bookmark", nostr.KindMessageBookmark, "general", e(hers), policy.Verdict{}},
		{"a bookmark of what is missing", nostr.KindMessageBookmark, "general", missing, noTarget},
		{"a reminder", nostr.KindMessageReminder, "general", e(hers), policy.Verdict{}},
		{"a reminder of what is elsewhere", nostr.KindMessageReminder, "general", e(elsewhere), noTarget},
	} {
		require.Equal(t, c.want, f.verdict(f.candidate("alice", nostrtest.Kind(c.kind), nostrtest.Channel(c.h), c.target)), c.name)
	}
}
