package kind_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
)

var author, alice, bob = nostr.PubKey{1}, nostr.PubKey{2}, nostr.PubKey{3}

func p(k nostr.PubKey) nostr.Tag { return nostr.Tag{"p", k.String()} }

func TestAudience(t *testing.T) {
	type may struct{ author, alice, bob, moderator bool }
	all := may{true, true, true, true}
	for _, c := range []struct {
		name string
		kind nostr.Kind
		tags nostr.Tags
		want may
	}{
		{"a note", 1, nostr.Tags{p(alice)}, all},
		{"an unknown kind", 31234, nil, all},
		{"a gift wrap", 1059, nostr.Tags{p(alice)}, may{author: true, alice: true}},
		{"a direct message to two", 4, nostr.Tags{p(alice), p(bob)}, may{author: true, alice: true, bob: true}},
		{"a direct message to nobody", 4, nostr.Tags{{"p", "x"}, {"p"}}, may{author: true}},
		{"a notice", 44100, nostr.Tags{p(bob)}, may{author: true, bob: true}},
		{"a memory", 30174, nostr.Tags{p(bob)}, may{author: true, bob: true}},
		{"a frame of an agent", 24200, nostr.Tags{p(bob)}, may{author: true, bob: true}},
		{"a reminder", 30300, nostr.Tags{p(alice)}, may{author: true}},
		{"a private agent", 30179, nostr.Tags{{"shared", "true"}}, may{author: true}},
		{"a report", 1984, nostr.Tags{p(alice)}, may{author: true, moderator: true}},
		{"a persona", 30175, nil, may{author: true}},
		{"a shared persona", 30175, nostr.Tags{{"d", "x"}, {"shared", "true"}}, all},
		{"shared without a value", 30175, nostr.Tags{{"shared"}}, may{author: true}},
		{"shared with more", 30178, nostr.Tags{{"shared", "true", ""}}, may{author: true}},
		{"shared, but not true", 30178, nostr.Tags{{"shared", "TRUE"}}, may{author: true}},
		{"shared twice", 30178, nostr.Tags{{"shared", "true"}, {"shared", "true"}}, may{author: true}},
		{"shared and not", 30178, nostr.Tags{{"shared", "true"}, {"shared", "false"}}, may{author: true}},
		{"a team", 30176, nil, all},
		{"a metric", 44200, nostr.Tags{p(alice)}, may{alice: true}},
		{"a metric of one owner twice", 44200, nostr.Tags{p(alice), p(alice)}, may{alice: true}},
		{"a metric of two owners", 44200, nostr.Tags{p(alice), p(bob)}, may{}},
		{"a metric of one and of none", 44200, nostr.Tags{p(alice), {"p", "x"}}, may{}},
		{"a metric of nobody", 44200, nil, may{}},
		{"hidden conversations", 30622, nostr.Tags{p(bob)}, may{bob: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := kind.AudienceOf(&nostr.Event{PubKey: author, Kind: c.kind, Tags: c.tags})
			require.Equal(t, c.want, may{a.Has(author, false), a.Has(alice, false), a.Has(bob, false), a.Has(nostr.PubKey{9}, true)})
			require.Equal(t, c.want == all, a.IsEverybody())
			require.Equal(t, c.want.alice || c.want.moderator, a.MayHave([]nostr.PubKey{alice}))
			require.Equal(t, c.want.alice || c.want.bob || c.want.moderator, a.MayHave([]nostr.PubKey{alice, bob}))

			mark, marked := kind.Mark(&nostr.Event{PubKey: author, Kind: c.kind, Tags: c.tags})
			switch kind.Of(c.kind).Readers {
			case kind.Shared:
				require.Equal(t, c.want == all, marked)
				require.Equal(t, kind.MarkEverybody, mark)
			case kind.Owner:
				require.Equal(t, c.want.alice || c.want.bob, marked)
				require.True(t, !marked || mark == alice.String() || mark == bob.String())
			default:
				require.False(t, marked)
			}
		})
	}
}

func TestRefusal(t *testing.T) {
	const (
		byP      = "p-gated events require #p matching your pubkey"
		byAuthor = "author-only kinds require authors=[self]"
		byEither = "agent-engram reads require authors=[self] or #p=[self]"
	)
	ofP := func(values ...string) []nostr.TagCondition { return []nostr.TagCondition{{Name: 'p', Values: values}} }
	ids := []nostr.ID{{7}}
	me, other := []nostr.PubKey{alice}, []nostr.PubKey{bob}
	for _, c := range []struct {
		name   string
		filter nostr.Filter
		want   string
	}{
		{"no kinds", nostr.Filter{}, ""},
		{"kinds for everybody", nostr.Filter{Kinds: []nostr.Kind{1, 9, 30176}}, ""},
		{"notices", nostr.Filter{Kinds: []nostr.Kind{44100}}, byP},
		{"notices to me", nostr.Filter{Kinds: []nostr.Kind{44100, 44101}, Tags: ofP(alice.String())}, ""},
		{"notices to another", nostr.Filter{Kinds: []nostr.Kind{44100}, Tags: ofP(bob.String())}, byP},
		{"notices to both", nostr.Filter{Kinds: []nostr.Kind{44100}, Tags: ofP(alice.String(), bob.String())}, byP},
		{"notices to what is no key", nostr.Filter{Kinds: []nostr.Kind{44100}, Tags: ofP("x")}, byP},
		{"notices in a channel", nostr.Filter{Kinds: []nostr.Kind{44100}, Tags: []nostr.TagCondition{{Name: 'h', Values: []string{"c"}}}}, byP},
		{"gift wraps among others", nostr.Filter{Kinds: []nostr.Kind{1, 1059}}, byP},
		{"gift wraps by id", nostr.Filter{Kinds: []nostr.Kind{1059}, IDs: ids}, ""},
		{"a metric by id", nostr.Filter{Kinds: []nostr.Kind{44200}, IDs: ids}, byP},
		{"a metric by id among others", nostr.Filter{Kinds: []nostr.Kind{1059, 44200}, IDs: ids}, byP},
		{"memories", nostr.Filter{Kinds: []nostr.Kind{30174}}, byEither},
		{"my memories", nostr.Filter{Kinds: []nostr.Kind{30174}, Authors: me}, ""},
		{"memories for me", nostr.Filter{Kinds: []nostr.Kind{30174}, Authors: other, Tags: ofP(alice.String())}, ""},
		{"another's memories", nostr.Filter{Kinds: []nostr.Kind{30174}, Authors: other}, byEither},
		{"reminders", nostr.Filter{Kinds: []nostr.Kind{30300}}, byAuthor},
		{"my reminders", nostr.Filter{Kinds: []nostr.Kind{30300, 30350}, Authors: me}, ""},
		{"another's reminders", nostr.Filter{Kinds: []nostr.Kind{30300}, Authors: []nostr.PubKey{alice, bob}}, byAuthor},
		{"reminders by id", nostr.Filter{Kinds: []nostr.Kind{30300}, IDs: ids}, ""},
		{"reminders among others", nostr.Filter{Kinds: []nostr.Kind{1, 30300}}, ""},
		{"direct messages", nostr.Filter{Kinds: []nostr.Kind{4}}, ""},
		{"reports", nostr.Filter{Kinds: []nostr.Kind{1984}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, kind.Refusal(&c.filter, me))
		})
	}
	require.Equal(t, byP, kind.Refusal(&nostr.Filter{Kinds: []nostr.Kind{44100}, Tags: ofP(alice.String())}, nil), "nobody")
}
