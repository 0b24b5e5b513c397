package model_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/conformance/internal/model"
)

func TestMatch(t *testing.T) {
	e := nostrtest.Event(t, "alice", nostrtest.CreatedAt(100), nostrtest.Kind(7),
		nostrtest.Tag("t", "red", "blue"), nostrtest.Tag("t", "green"), nostrtest.Tag("e"), nostrtest.Tag("long", "x"))
	alice, bob := nostrtest.PubKey("alice").String(), nostrtest.PubKey("bob").String()
	tagged := func(name string, values ...string) model.Filter {
		return model.Filter{Tags: map[string][]string{name: values}}
	}
	for name, c := range map[string]struct {
		filter model.Filter
		want   bool
	}{
		"everything":      {model.Filter{}, true},
		"id":              {model.Filter{IDs: []string{e.ID.String()}}, true},
		"no id":           {model.Filter{IDs: []string{}}, false},
		"author":          {model.Filter{Authors: []string{bob, alice}}, true},
		"another author":  {model.Filter{Authors: []string{bob}}, false},
		"kind":            {model.Filter{Kinds: []nostr.Kind{1, 7}}, true},
		"another kind":    {model.Filter{Kinds: []nostr.Kind{1}}, false},
		"since":           {model.Filter{Since: new(int64(100))}, true},
		"since later":     {model.Filter{Since: new(int64(101))}, false},
		"until":           {model.Filter{Until: new(int64(100))}, true},
		"until earlier":   {model.Filter{Until: new(int64(99))}, false},
		"tag":             {tagged("t", "red"), true},
		"second tag":      {tagged("t", "x", "green"), true},
		"second value":    {tagged("t", "blue"), false},
		"empty tag":       {tagged("e", ""), false},
		"missing tag":     {tagged("p", "red"), false},
		"one tag of two":  {model.Filter{Tags: map[string][]string{"t": {"red"}, "p": {"x"}}}, false},
		"limit is no bar": {model.Filter{Limit: new(0)}, true},
		"all together": {model.Filter{
			IDs: []string{e.ID.String()}, Authors: []string{alice}, Kinds: []nostr.Kind{7}, Since: new(int64(1)),
			Until: new(int64(200)), Tags: map[string][]string{"t": {"red"}},
		}, true},
	} {
		require.Equal(t, c.want, c.filter.Match(e), name)
	}
}

// The evaluator was written without a look at the relay's; where they differ, one of them is wrong.
func TestMatchIsTheRelaysMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := nostrtest.Events(1, 20).Draw(t, "events")
		theirs := nostrtest.Filter(events...).Draw(t, "filter")
		var mine model.Filter
		for _, id := range theirs.IDs {
			mine.IDs = append(mine.IDs, id.String())
		}
		for _, author := range theirs.Authors {
			mine.Authors = append(mine.Authors, author.String())
		}
		mine.Kinds, mine.Since, mine.Until, mine.Limit = theirs.Kinds, theirs.Since, theirs.Until, theirs.Limit
		for _, c := range theirs.Tags {
			if mine.Tags == nil {
				mine.Tags = map[string][]string{}
			}
			mine.Tags[string(c.Name)] = c.Values
		}
		if theirs.MatchesNothing {
			mine.IDs = []string{}
		}
		for _, e := range events {
			require.Equal(t, theirs.Match(e), mine.Match(e), "%s of %s", mine, e.AppendJSON(nil))
		}
		raw, err := json.Marshal(mine)
		require.NoError(t, err)
		read, err := wire.DecodeFilter(raw, wire.DefaultLimits())
		require.NoError(t, err, "%s", raw)
		for _, e := range events {
			require.Equal(t, read.Match(e), mine.Match(e), "the filter as it was sent: %s", raw)
		}
	})
}

func TestRemaining(t *testing.T) {
	at := nostrtest.CreatedAt
	event := func(opts ...nostrtest.Option) *nostr.Event { return nostrtest.Event(t, "alice", opts...) }
	d := nostrtest.Tag("d", "x")
	note, gone := event(at(1)), event(at(2))
	v1, v2 := event(nostrtest.Kind(30023), at(1), d), event(nostrtest.Kind(30023), at(2), d)
	r1, r2 := event(nostrtest.Kind(10002), at(1)), event(nostrtest.Kind(10002), at(2))
	tieA, tieB := event(nostrtest.Kind(0), at(5), nostrtest.Content("a")), event(nostrtest.Kind(0), at(5), nostrtest.Content("b"))
	byID := event(nostrtest.Kind(5), at(9), nostrtest.Tag("e", gone.ID.String()))
	byAddress := event(nostrtest.Kind(5), at(1), nostrtest.Tag("a", "10002:"+note.PubKey.String()+":"))
	others := nostrtest.Event(t, "bob", nostrtest.Kind(5), at(9), nostrtest.Tag("e", note.ID.String()))
	ofDeletion := event(nostrtest.Kind(5), at(9), nostrtest.Tag("e", byID.ID.String()), nostrtest.Content("no effect"))
	lower := tieA
	if model.Order(tieB, tieA) < 0 {
		lower = tieB
	}

	var s model.Store
	s.Add(byID, note, gone, v2, v1, r1, r2, tieA, tieB, event(nostrtest.Kind(20001)), byAddress, others, ofDeletion, note)
	require.ElementsMatch(t, []*nostr.Event{byID, note, v2, r2, lower, byAddress, others, ofDeletion}, s.Remaining())

	s.Add(event(nostrtest.Kind(5), at(2), nostrtest.Tag("a", "10002:"+note.PubKey.String()+":")))
	require.NotContains(t, s.Remaining(), r2)
	require.NotContains(t, s.Remaining(), r1, "the older version does not come back")
}

func TestAnswer(t *testing.T) {
	var s model.Store
	for i := range 10 {
		s.Add(nostrtest.Event(t, "alice", nostrtest.CreatedAt(int64(i/2)), nostrtest.Content(string(rune('a'+i)))))
	}
	all := s.Answer(&model.Filter{}, 100)
	require.Len(t, all, 10)
	require.IsNonIncreasing(t, seconds(all))
	require.Equal(t, all[:3], s.Answer(&model.Filter{Limit: new(3)}, 100))
	require.Equal(t, all[:2], s.Answer(&model.Filter{Limit: new(3)}, 2))
	require.Empty(t, s.Answer(&model.Filter{Limit: new(0)}, 100))
}

func seconds(events []*nostr.Event) []int64 {
	list := make([]int64, len(events))
	for i, e := range events {
		list[i] = e.CreatedAt
	}
	return list
}
