package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// The functions below make events that are about another one, which their caller has found. None is signed.

// Reply answers a message: in its channel and its thread (NIP-10, marked e tags), or as a note.
func Reply(to *nostr.Event, text string) *nostr.Event {
	reply := &nostr.Event{Kind: nostr.KindText, Tags: inChannelOf(to), Content: text}
	switch {
	case to.Kind == nostr.KindForumPost || to.Kind == nostr.KindForumComment:
		reply.Kind = nostr.KindForumComment
	case len(reply.Tags) > 0:
		reply.Kind = nostr.KindChat
	}
	parent := to.ID.String()
	if root, ok := marked(to.Tags, "root"); ok {
		reply.Tags = append(reply.Tags, nostr.Tag{"e", root, "", "root"})
	} else if _, deeper := marked(to.Tags, "reply"); !deeper {
		reply.Tags = append(reply.Tags, nostr.Tag{"e", parent, "", "root"})
	}
	reply.Tags = append(reply.Tags, nostr.Tag{"e", parent, "", "reply"}, nostr.Tag{"p", to.PubKey.String()})
	return reply
}

// React reacts to an event (NIP-25), with "+" or an emoji.
func React(to *nostr.Event, reaction string) *nostr.Event {
	return &nostr.Event{
		Kind:    nostr.KindReaction,
		Tags:    append(inChannelOf(to), nostr.Tag{"e", to.ID.String()}, nostr.Tag{"p", to.PubKey.String()}, kindTag(to)),
		Content: reaction,
	}
}

// Edit replaces the text of a message of a channel (kind 40003). The relay takes it from the message's author.
func Edit(message *nostr.Event, text string) (*nostr.Event, error) {
	tags := inChannelOf(message)
	if len(tags) == 0 {
		return nil, errors.New("only what is in a channel can be edited: delete it and publish another")
	}
	return &nostr.Event{Kind: nostr.KindMessageEdit, Tags: append(tags, nostr.Tag{"e", message.ID.String()}), Content: text}, nil
}

// Delete deletes an event: an author's own (NIP-09), or, in a channel, another's, which is for its admins (NIP-29).
func Delete(event *nostr.Event, by nostr.PubKey, reason string) *nostr.Event {
	request := &nostr.Event{
		Kind: nostr.KindDeletion, Tags: append(inChannelOf(event), nostr.Tag{"e", event.ID.String()}), Content: reason,
	}
	if len(request.Tags) > 1 && event.PubKey != by {
		request.Kind = nostr.KindDeleteEvent
		return request
	}
	request.Tags = append(request.Tags, kindTag(event))
	return request
}

// Report complains to moderators of an event and of its author (NIP-56); why is one of that NIP's words.
func Report(event *nostr.Event, why, text string) *nostr.Event {
	return &nostr.Event{
		Kind: nostr.KindReport,
		Tags: nostr.Tags{{"e", event.ID.String(), why}, {"p", event.PubKey.String()}}, Content: text,
	}
}

// inChannelOf is the tag for the channel that an event is in.
func inChannelOf(event *nostr.Event) nostr.Tags {
	if channel, ok := event.Channel(); ok {
		return nostr.Tags{{"h", channel}}
	}
	return nil
}

// kindTag says of what kind an event is.
func kindTag(event *nostr.Event) nostr.Tag { return nostr.Tag{"k", strconv.Itoa(int(event.Kind))} }

// marked returns the value of the first e tag with a marker, and whether there is one.
func marked(tags nostr.Tags, marker string) (string, bool) {
	for t := range tags.All("e") {
		if len(t) >= 4 && t[3] == marker {
			return t[1], true
		}
	}
	return "", false
}

// ChannelMade returns the channel that the relay's remark names: it has chosen the id of a channel or a conversation.
func ChannelMade(remark string) (string, error) {
	var made struct {
		Channel string `json:"channel_id"`
	}
	if text, ok := strings.CutPrefix(remark, "response:"); ok {
		if err := json.Unmarshal([]byte(text), &made); err == nil && made.Channel != "" {
			return made.Channel, nil
		}
	}
	return "", fmt.Errorf("the relay does not say which channel it made: %s", Printable(remark))
}
