package store

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// circle is what the model knows of the conversations of a closed community.
type circle struct {
	members map[string]bool     // of the community, by name
	ids     map[string]string   // of conversations, by their names, sorted and joined
	in      map[string][]string // who is in one, by id
	hidden  map[string][]string // what is hidden, by name, the first one first
}

func newCircle(names []string) *circle {
	m := &circle{members: map[string]bool{}, ids: map[string]string{}, in: map[string][]string{}, hidden: map[string][]string{}}
	for _, name := range names {
		m.members[name] = true
	}
	return m
}

// open says whether somebody may open the conversation of some, and forgets that it hides it.
func (m *circle) open(actor string, with []string) bool {
	h, exists := m.ids[strings.Join(with, ",")]
	if !m.members[actor] || (!exists && slices.ContainsFunc(with, func(name string) bool { return !m.members[name] })) {
		return false
	}
	m.hidden[actor] = slices.DeleteFunc(m.hidden[actor], func(id string) bool { return id == h })
	return true
}

// isIn reports whether somebody may use a conversation.
func (m *circle) isIn(actor, h string) bool {
	return m.members[actor] && slices.Contains(m.in[h], actor)
}

func (m *circle) hide(actor, h string) bool {
	if !m.isIn(actor, h) {
		return false
	}
	if !slices.Contains(m.hidden[actor], h) {
		m.hidden[actor] = append(m.hidden[actor], h)
	}
	return true
}

// setOf sorts names, each once.
func setOf(names ...string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// TestConversationsAreAsTheModelSays sends random commands of several keys through two replicas while they come and go, and
// compares the verdicts, who is in what, and what the relay has signed with a model, after each.
func TestConversationsAreAsTheModelSays(t *testing.T) {
	t.Parallel()
	f := newTalk(t)
	stores := []*Store{f.Store, f.second()}
	names := []string{"alice", "bob", "carol", "dave"}
	communities := 0
	rapid.Check(t, func(rt *rapid.T) {
		communities++
		f.community = f.newCommunity("host-"+strconv.Itoa(communities)+".example", AccessClosed)
		for _, name := range names {
			f.put(f.community, name, policy.RoleMember)
		}
		m := newCircle(names)
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			f.step(rt, m, names, stores[rapid.IntRange(0, 1).Draw(rt, "replica")])
			f.requireCircle(rt, m)
		}
	})
}

// step is one thing that somebody does.
func (f *talk) step(rt *rapid.T, m *circle, names []string, s *Store) {
	actor := rapid.SampledFrom(names).Draw(rt, "actor")
	others := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, len(names), rapid.ID).Draw(rt, "others")
	others = setOf(slices.DeleteFunc(others, func(name string) bool { return name == actor })...)
	ids := []string{"no-such-channel"}
	for _, h := range m.ids {
		ids = append(ids, h)
	}
	slices.Sort(ids[1:]) // random: which one is drawn does not matter
	h := rapid.SampledFrom(ids).Draw(rt, "conversation")
	do := func(kind nostr.Kind, allowed bool, opts ...nostrtest.Option) policy.Verdict {
		result, err := s.Commit(f.t.Context(), []*policy.Candidate{f.ask(actor, kind, opts...)})
		require.NoError(rt, err)
		v := result.Verdicts[0]
		require.Equal(rt, allowed, v.Accepted(), "kind %d by %s: %s", kind, actor, v.Message)
		return v
	}
	switch command := rapid.IntRange(0, 9).Draw(rt, "command"); {
	case command == 0:
		_, err := s.RemoveMember(f.t.Context(), f.community, nostrtest.PubKey(actor))
		require.NoError(rt, err)
		m.members[actor] = false
	case command == 1:
		_, err := s.PutMember(f.t.Context(), f.community, nostrtest.PubKey(actor), policy.RoleMember)
		require.NoError(rt, err)
		m.members[actor] = true
	case command < 5:
		do(nostr.KindHideConversation, m.hide(actor, h), nostrtest.Channel(h))
	case len(others) == 0:
	case command < 8:
		with := setOf(append(others, actor)...)
		f.opened(rt, m, with, do(nostr.KindOpenConversation, m.open(actor, with), ps(others...)...))
	default:
		with := setOf(append(slices.Clone(m.in[h]), others...)...)
		allowed := m.isIn(actor, h) && m.open(actor, with)
		f.opened(rt, m, with, do(nostr.KindAddToConversation, allowed, append(ps(others...), nostrtest.Channel(h))...))
	}
}

// opened checks what is told of a conversation that was opened, if it was.
func (f *talk) opened(rt *rapid.T, m *circle, with []string, v policy.Verdict) {
	if !v.Accepted() {
		return
	}
	name := strings.Join(with, ",")
	h, exists := m.ids[name]
	o := readOpened(f.t, v)
	require.Equal(rt, !exists, o.Created)
	if exists {
		require.Equal(rt, h, o.Channel)
		return
	}
	require.NotContains(rt, m.in, o.Channel)
	m.ids[name], m.in[o.Channel] = o.Channel, with
}

// requireCircle checks that the community is as the model says.
func (f *talk) requireCircle(rt *rapid.T, m *circle) {
	require.Equal(rt, len(m.ids), f.count(`SELECT count(*) FROM ingest.channels WHERE community_id = $1`, f.community))
	for h, with := range m.in {
		var pairs []string
		for _, name := range with {
			pairs = append(pairs, name, "member")
		}
		require.Equal(rt, holding(pairs...), f.membersOf(h))
		f.requireSnapshots(h)
	}
	for name := range m.members {
		require.ElementsMatch(rt, m.hidden[name], f.hiddenBy(name), name)
	}
}
