package cluster_test

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/channelmodel"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// stateKinds are what the relay signs of a channel.
var stateKinds = []nostr.Kind{nostr.KindGroupMetadata, nostr.KindGroupAdmins, nostr.KindGroupMembers, nostr.KindGroupRoles}

// actor is somebody who sends commands through any gateway, and watches a channel through one.
type actor struct {
	name, key string
	by        []*cluster.Client // through each gateway
	watch     *cluster.Client   // one of them
	// state listens for the channel's state, as clients do without an h tag, messages for what is said in it.
	state, messages *cluster.Sub
}

func newActor(t *testing.T, c *cluster.Cluster, name string, watch int) *actor {
	t.Helper()
	a := &actor{name: name, key: nostrtest.PubKey(who(t, name)).String()}
	for i := range 2 {
		a.by = append(a.by, cluster.Dial(t, c.Gateway(i), who(t, name)))
	}
	a.watch = a.by[watch]
	return a
}

// stateOf filters on the state of a channel.
func stateOf(h string) nostr.Filter {
	return nostr.Filter{Kinds: stateKinds, Tags: []nostr.TagCondition{{Name: 'd', Values: []string{h}}}}
}

// listen opens the subscriptions for a channel.
func (a *actor) listen(h string) {
	live := stateOf(h)
	live.Limit = new(int)
	a.state = a.watch.Subscribe(live)
	a.listenAgain(h)
}

func (a *actor) listenAgain(h string) {
	live := in(h)
	live.Kinds, live.Limit = []nostr.Kind{nostr.KindChat}, new(int)
	a.messages = a.watch.Subscribe(live)
}

// leave closes the subscriptions. Nothing may have come that was not expected.
func (a *actor) leave() {
	for _, s := range []*cluster.Sub{a.state, a.messages} {
		s.Silent()
		s.Close()
	}
}

// requireLive checks what comes of a step, to who may read: what the relay has signed, and a message. Who could before
// and cannot now is told.
func (a *actor) requireLive(t *rapid.T, h string, before *channelmodel.Channel, s *channelmodel.Step, sent *nostr.Event) {
	if !s.After.Visible(a.key) {
		if before.Visible(a.key) {
			frame := a.messages.NextFrame()
			require.Equal(t, wire.LabelClosed, frame.Label, "%s lost the channel and got %s", a.name, frame.RawEvent)
			require.Equal(t, "restricted: channel access revoked", frame.Message)
			a.listenAgain(h)
		}
		return
	}
	if s.Allowed && s.Kind == nostr.KindChat {
		require.Equal(t, sent, a.messages.Next())
	}
	want := s.After.State(h)
	var kinds []nostr.Kind
	for range s.Signed {
		event := a.state.Next()
		require.Equal(t, want[event.Kind], channelmodel.Sorted(event.Tags), "live kind %d", event.Kind)
		kinds = append(kinds, event.Kind)
	}
	slices.Sort(kinds)
	require.Equal(t, s.Signed, kinds)
}

// requireStored checks what an actor finds of the channel.
func (a *actor) requireStored(t *rapid.T, h string, m *channelmodel.Channel) {
	stored := a.watch.Query(stateOf(h))
	if !m.Visible(a.key) {
		require.Empty(t, stored, "%s cannot know of the channel", a.name)
		return
	}
	got := map[nostr.Kind]nostr.Tags{}
	for _, event := range stored {
		require.Equal(t, nostrtest.PubKey(cluster.RelayKey), event.PubKey)
		got[event.Kind] = channelmodel.Sorted(event.Tags)
	}
	require.Len(t, stored, len(stateKinds))
	require.Equal(t, m.State(h), got)
}

// Random commands of four keys through two ingest replicas, one behind each gateway, do what the model says: after each
// step everybody has got live, and one of them, at the end each, finds the state that the model has, or nothing if the
// channel is not there for them.
func TestChannelsAreAsTheModelSays(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Gateways(2), cluster.Ingests(2), cluster.Fanouts(2), cluster.Searches(2), cluster.Paired())
	var actors []*actor
	var keys []string
	for i, name := range []string{"alice", "bob", "carol", "dave"} {
		actors = append(actors, newActor(t, c, name, i%2))
		keys = append(keys, actors[i].key)
	}
	channels, serial := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		channels++
		h := "channel-" + strconv.Itoa(channels)
		for _, a := range actors {
			a.listen(h)
		}
		var m channelmodel.Channel
		for range channelmodel.Pick(rt, "steps", 4, 8, 12, 16) {
			s := m.Draw(rt, keys)
			a := actors[slices.Index(keys, s.Actor)]
			serial++
			opts := []nostrtest.Option{nostrtest.Kind(s.Kind), nostrtest.Channel(h), nostrtest.Tag("serial", strconv.Itoa(serial))}
			for _, tag := range s.Tags {
				opts = append(opts, nostrtest.Tag(tag...))
			}
			client := channelmodel.Pick(rt, "replica", a.by...)
			event := client.Event(opts...)
			verdict := client.Publish(event)
			require.Equal(rt, s.Allowed, verdict.OK, "kind %d by %s: %s", s.Kind, a.name, verdict.Message)
			for _, each := range actors {
				each.requireLive(rt, h, &m, &s, event)
			}
			m = s.After
			channelmodel.Pick(rt, "witness", actors...).requireStored(rt, h, &m)
		}
		for _, a := range actors {
			a.requireStored(rt, h, &m)
			a.leave()
		}
	})
}

// However many owners leave, demote and remove each other at the same time through two ingest replicas, one of them stays.
func TestTheLastOwnerStays(t *testing.T) {
	const owners, attempts, duels = 8, 64, 32
	c := cluster.New(t, cluster.Gateways(2), cluster.Ingests(2), cluster.Paired())
	h := newHall(t, c)
	name := func(i int) string { return who(t, "owner-"+strconv.Itoa(i%owners)) }
	var clients [owners][2]*cluster.Client // through each gateway
	for i := range clients {
		h.must(h.owner, nostr.KindPutUser, pubkey(name(i)), nostrtest.Tag("role", "owner"))
		for gateway := range 2 {
			clients[i][gateway] = cluster.Dial(t, c.Gateway(gateway), name(i))
		}
	}
	h.must(h.owner, nostr.KindLeaveRequest)
	// attempt has the i-th owner try to be none any more, or to remove another, in the i-th way.
	attempt := func(i, removes, gateway int, serial string) func() bool {
		opts := []nostrtest.Option{nostrtest.Channel(h.h), nostrtest.Tag("serial", serial)}
		switch i % 3 {
		case 0:
			opts = append(opts, nostrtest.Kind(nostr.KindLeaveRequest))
		case 1:
			opts = append(opts, nostrtest.Kind(nostr.KindRemoveUser), pubkey(name(removes)))
		case 2:
			opts = append(opts, nostrtest.Kind(nostr.KindPutUser), pubkey(name(i)), nostrtest.Tag("role", "guest"))
		}
		client := clients[i%owners][gateway]
		event := client.Event(opts...)
		return func() bool {
			verdict, err := client.TryPublish(event)
			return err == nil && verdict.OK
		}
	}
	ownersNow := func() (list []string) {
		for tag := range h.state(h.owner, nostr.KindGroupAdmins).Tags.All("p") {
			list = append(list, tag[1])
		}
		return list
	}
	var accepted atomic.Int32
	var all sync.WaitGroup
	for i := range attempts {
		try := attempt(i, i+1+i/owners, i/owners%2, strconv.Itoa(i))
		all.Go(func() {
			if try() {
				accepted.Add(1)
			}
		})
	}
	all.Wait()
	require.GreaterOrEqual(t, accepted.Load(), int32(owners-1), "all but one could go")
	require.Len(t, ownersNow(), 1)

	// Two owners at a time, so that the last one is at stake each time.
	last := 0
	for nostrtest.PubKey(name(last)).String() != ownersNow()[0] {
		last++
	}
	for duel := range duels {
		other := (last + 1 + duel%(owners-1)) % owners
		h.must(clients[last][0], nostr.KindPutUser, pubkey(name(other)), nostrtest.Tag("role", "owner"), nostrtest.Tag("duel", strconv.Itoa(duel)))
		tries := [2]func() bool{attempt(last, last, 0, "duel "+strconv.Itoa(duel)), attempt(other, other, 1, "duel "+strconv.Itoa(duel))}
		var gone [2]bool
		var both sync.WaitGroup
		for i, try := range tries {
			both.Go(func() { gone[i] = try() })
		}
		both.Wait()
		require.NotEqual(t, gone[0], gone[1], "one goes, the other stays")
		require.Len(t, ownersNow(), 1)
		if gone[0] {
			last = other
		}
	}
}
