package client

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

func TestAConversationIsInOrder(t *testing.T) {
	event := func(n byte, at int64, about ...byte) message {
		e := &nostr.Event{ID: nostr.ID{n}, CreatedAt: at}
		for _, id := range about {
			e.Tags = append(e.Tags, nostr.Tag{"e", nostr.ID{id}.String()})
		}
		return message{event: e}
	}
	messages := []message{
		event(9, 7),       // another thing of the last second
		event(1, 5, 2, 3), // answers 3, in the thread of 2
		event(4, 5, 1),
		event(3, 5, 2),
		event(2, 5),
		event(8, 4, 9), // what is about later things is where its time says
		event(6, 6, 2), // about an earlier second
		event(7, 5, 7), // nobody can make this
	}
	inOrder(messages)
	var ids []byte
	for _, m := range messages {
		ids = append(ids, m.event.ID[0])
	}
	require.Equal(t, []byte{8, 2, 3, 1, 4, 7, 6, 9}, ids)
}
