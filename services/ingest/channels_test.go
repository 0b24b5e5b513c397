package ingest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

// Of several replicas that find a channel whose time is over, one archives it, and says so once.
func TestChannelsAreKeptByOneReplica(t *testing.T) {
	h := newHarness(t)
	withKey := func(o *options) { o.cfg.RelayKey = config.NewSecret(nostrtest.Key("relay").Hex()) }
	r := h.start("one", withKey)
	h.awaitStreams()
	community := h.community(r, "one.example", open)
	c := h.open(r)
	made := nostrtest.CreatedAt(time.Now().Add(-10 * time.Minute).Unix())
	c.accept(by(community, event(t, "alice", nostrtest.Kind(9007), made, nostrtest.Channel("hall"), nostrtest.Tag("ttl", "60")), "alice"))
	_, err := h.admin.Exec(t.Context(), `UPDATE ingest.channels SET ttl_deadline = now() - interval '1 second'`)
	require.NoError(t, err)
	for _, name := range []string{"two", "three", "four"} {
		h.start(name, withKey)
	}
	archived := func() bool { return h.count(`SELECT count(*) FROM ingest.channels WHERE archived_at IS NOT NULL`) == 1 }
	require.Eventually(t, archived, patience, 10*time.Millisecond, "no other sign")
	v := c.offer(by(community, event(t, "alice", nostrtest.Kind(9), nostrtest.Channel("hall")), "alice"))
	requireVerdict(t, invalid, "channel is archived", v)
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.events WHERE raw LIKE '%channel_auto_archived%'::bytea`))
}

// What may be made is counted by what the service was told; who wants more is told so.
func TestChannelsAndConversationsAreBounded(t *testing.T) {
	h := newHarness(t)
	r := h.start("one", func(o *options) {
		o.cfg.RelayKey = config.NewSecret(nostrtest.Key("relay").Hex())
		o.cfg.ChannelsPerMember, o.cfg.ConversationsPerCommunity = 1, 1
	})
	community := h.community(r, "one.example", open)
	c := h.open(r)
	create := func(author, h string) *ingestv1.Submission {
		return by(community, event(t, author, nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(h), nostrtest.Tag("name", h)), author)
	}
	talk := func(with string) *ingestv1.Submission {
		other := nostrtest.PubKey(with)
		return by(community, event(t, "alice", nostrtest.Kind(nostr.KindOpenConversation), nostrtest.Tag("p", other.String())), "alice")
	}
	c.accept(create("alice", "hall"), create("bob", "den"))
	requireVerdict(t, restricted, "you and your agents have made 1 channels, as many as you may", c.offer(create("alice", "loft")))
	require.Contains(t, c.offer(talk("bob")).GetMessage(), `"created":true`)
	requireVerdict(t, restricted, "the community has 1 conversations, as many as it may have", c.offer(talk("carol")))
}
