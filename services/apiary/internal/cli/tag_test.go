package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nip19"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

func encode(t *testing.T, ref nip19.Ref) string {
	t.Helper()
	text, err := ref.Encode()
	require.NoError(t, err)
	return text
}

// In a tag or a filter stands what relays compare; people have NIP-19.
func TestTagsAreWrittenAsPeopleHaveThem(t *testing.T) {
	alice, id := nostrtest.PubKey("alice"), nostr.ID{1, 2, 3}
	npub := encode(t, nip19.Ref{Type: nip19.PubKey, PubKey: alice})
	profile := encode(t, nip19.Ref{Type: nip19.Profile, PubKey: alice, Relays: []string{"wss://team.example"}})
	note := encode(t, nip19.Ref{Type: nip19.Note, ID: id})
	event := encode(t, nip19.Ref{Type: nip19.Event, ID: id})
	address := encode(t, nip19.Ref{Type: nip19.Address, PubKey: alice, Kind: nostr.KindArticle, Identifier: "on=bees"})
	for text, want := range map[string]nostr.Tag{
		"p=" + npub:           {"p", alice.String()},
		"p=nostr:" + profile:  {"p", alice.String()},
		"e=" + note:           {"e", id.String()},
		"q=" + event:          {"q", id.String()},
		"a=" + address:        {"a", "30023:" + alice.String() + ":on=bees"},
		"q=" + address:        {"q", "30023:" + alice.String() + ":on=bees"},
		"p=" + alice.String(): {"p", alice.String()},
		"title=" + npub:       {"title", npub},
		"t=a=b":               {"t", "a=b"},
		"t=":                  {"t", ""},
		"private":             {"private"},
		`["p","` + npub + `","wss://team.example","a, b"]`: {"p", alice.String(), "wss://team.example", "a, b"},
	} {
		tag, err := parseTag(text)
		require.NoError(t, err, text)
		require.Equal(t, want, tag, text)
	}
	for _, text := range []string{"p=" + note, "e=" + npub, "e=" + address, "a=" + event, "p=" + npub[:len(npub)-1], "p=nsec1whatever", `["p"`, "[]", "=x"} {
		_, err := parseTag(text)
		require.ErrorContains(t, err, "--tag", text)
	}
}

func TestConditionsOnOneTagAreAlternatives(t *testing.T) {
	alice := nostrtest.PubKey("alice")
	flags := filterFlags{
		Channel: "den", Tag: []string{"p=" + encode(t, nip19.Ref{Type: nip19.PubKey, PubKey: alice}), "t=bees", "p=x"},
		ID: []string{encode(t, nip19.Ref{Type: nip19.Note, ID: nostr.ID{7}}), nostr.ID{8}.String()},
	}
	filter, err := flags.filter()
	require.NoError(t, err)
	require.Equal(t, []nostr.ID{{7}, {8}}, filter.IDs)
	require.Equal(t, []nostr.TagCondition{
		{Name: 'h', Values: []string{"den"}}, {Name: 'p', Values: []string{alice.String(), "x"}}, {Name: 't', Values: []string{"bees"}},
	}, filter.Tags)
}

func TestIDs(t *testing.T) {
	id := nostr.ID{0xab}
	for _, text := range []string{id.String(), "AB" + id.String()[2:], encode(t, nip19.Ref{Type: nip19.Event, ID: id})} {
		got, err := parseID(text)
		require.NoError(t, err)
		require.Equal(t, id, got)
	}
	_, err := parseID(encode(t, nip19.Ref{Type: nip19.PubKey, PubKey: nostrtest.PubKey("alice")}))
	require.Error(t, err)
}
