package client

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

func TestRepliesKnowTheirThread(t *testing.T) {
	note := &nostr.Event{ID: nostr.ID{1}, PubKey: nostr.PubKey{7}, Kind: nostr.KindText}
	root := &nostr.Event{ID: nostr.ID{1}, PubKey: nostr.PubKey{7}, Kind: nostr.KindChat, Tags: nostr.Tags{{"h", "den"}}}
	first := Reply(root, "first")
	first.ID, first.PubKey = nostr.ID{2}, nostr.PubKey{8}
	bare := &nostr.Event{ID: nostr.ID{4}, Kind: nostr.KindForumComment, Tags: nostr.Tags{{"h", "den"}, {"e", "x", "", "reply"}}}
	one, two, four := root.ID.String(), first.ID.String(), bare.ID.String()
	for _, c := range []struct {
		to   *nostr.Event
		kind nostr.Kind
		tags nostr.Tags
	}{
		{note, nostr.KindText, nostr.Tags{{"e", one, "", "root"}, {"e", one, "", "reply"}, {"p", note.PubKey.String()}}},
		{root, nostr.KindChat, nostr.Tags{{"h", "den"}, {"e", one, "", "root"}, {"e", one, "", "reply"}, {"p", root.PubKey.String()}}},
		{first, nostr.KindChat, nostr.Tags{{"h", "den"}, {"e", one, "", "root"}, {"e", two, "", "reply"}, {"p", first.PubKey.String()}}},
		// Who answered without naming the root has not said which it is.
		{bare, nostr.KindForumComment, nostr.Tags{{"h", "den"}, {"e", four, "", "reply"}, {"p", bare.PubKey.String()}}},
	} {
		reply := Reply(c.to, "text")
		require.Equal(t, c.kind, reply.Kind)
		require.Equal(t, c.tags, reply.Tags)
		require.Equal(t, "text", reply.Content)
	}
}

func TestWhatIsDoneToMessages(t *testing.T) {
	message := &nostr.Event{ID: nostr.ID{1}, PubKey: nostr.PubKey{7}, Kind: nostr.KindChat, Tags: nostr.Tags{{"h", "den"}}}
	note := &nostr.Event{ID: nostr.ID{2}, PubKey: nostr.PubKey{7}, Kind: nostr.KindText}
	one, two, author := message.ID.String(), note.ID.String(), message.PubKey.String()

	require.Equal(t, &nostr.Event{Kind: nostr.KindReaction, Tags: nostr.Tags{{"h", "den"}, {"e", one}, {"p", author}, {"k", "9"}}, Content: "🐝"}, React(message, "🐝"))
	require.Equal(t, nostr.Tags{{"e", two}, {"p", author}, {"k", "1"}}, React(note, "+").Tags)

	edit, err := Edit(message, "better")
	require.NoError(t, err)
	require.Equal(t, &nostr.Event{Kind: nostr.KindMessageEdit, Tags: nostr.Tags{{"h", "den"}, {"e", one}}, Content: "better"}, edit)
	_, err = Edit(note, "better")
	require.ErrorContains(t, err, "only what is in a channel")

	require.Equal(t, &nostr.Event{Kind: nostr.KindDeletion, Tags: nostr.Tags{{"h", "den"}, {"e", one}, {"k", "9"}}}, Delete(message, message.PubKey, ""))
	require.Equal(t, &nostr.Event{Kind: nostr.KindDeleteEvent, Tags: nostr.Tags{{"h", "den"}, {"e", one}}, Content: "spam"}, Delete(message, nostr.PubKey{9}, "spam"))
	require.Equal(t, nostr.KindDeletion, Delete(note, nostr.PubKey{9}, "").Kind, "the relay says that it is another's")

	require.Equal(t, &nostr.Event{Kind: nostr.KindReport, Tags: nostr.Tags{{"e", one, "spam"}, {"p", author}}, Content: "again"}, Report(message, "spam", "again"))
}

func TestTheRelaySaysWhichChannelItMade(t *testing.T) {
	channel, err := ChannelMade(`response:{"channel_id":"abc","created":true}`)
	require.NoError(t, err)
	require.Equal(t, "abc", channel)
	for _, remark := range []string{"", `{"channel_id":"abc"}`, "response:{}", "response:abc"} {
		_, err = ChannelMade(remark)
		require.Error(t, err, remark)
	}
}
