package nostr_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

// jsCase is one entry of testdata/ids.json.
type jsCase struct {
	Name, Wire, Canonical, ID string
	Refused                   bool
}

// TestIDsOfJavaScript pins canonical forms and ids against what a JavaScript engine computes, because
// that is what nearly all clients are.
func TestIDsOfJavaScript(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/ids.json")
	require.NoError(t, err)
	var cases []jsCase
	require.NoError(t, json.Unmarshal(b, &cases))
	require.Greater(t, len(cases), 100)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			ev, err := wire.DecodeEvent([]byte(c.Wire), wire.DefaultLimits())
			if c.Refused {
				require.ErrorContains(t, err, "surrogate")
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.Canonical, string(ev.AppendCanonical(nil)))
			require.Equal(t, c.ID, ev.ComputeID().String())
			require.NoError(t, ev.CheckID())

			again, err := wire.DecodeEvent(ev.AppendJSON(nil), wire.DefaultLimits())
			require.NoError(t, err)
			require.Equal(t, ev, again)
		})
	}
}

func TestCheckIDNoticesEveryField(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*nostr.Event){
		"pubkey":        func(e *nostr.Event) { e.PubKey[31] ^= 1 },
		"created_at":    func(e *nostr.Event) { e.CreatedAt++ },
		"kind":          func(e *nostr.Event) { e.Kind++ },
		"content":       func(e *nostr.Event) { e.Content += " " },
		"tag value":     func(e *nostr.Event) { e.Tags[0][1] += "x" },
		"tag moved":     func(e *nostr.Event) { e.Tags[0], e.Tags[1] = e.Tags[1], e.Tags[0] },
		"tag regrouped": func(e *nostr.Event) { e.Tags = nostr.Tags{{"h", "lobby", "e", "x"}} },
		"id":            func(e *nostr.Event) { e.ID[0] ^= 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := nostrtest.Event(t, "alice", nostrtest.Channel("lobby"), nostrtest.Tag("e", "x"), nostrtest.Content("hi"))
			require.NoError(t, e.Verify())
			change(e)
			require.ErrorIs(t, e.CheckID(), nostr.ErrBadID)
			require.ErrorIs(t, e.Verify(), nostr.ErrBadID)
		})
	}
}

// TestAppendStringIsJSON compares the encoder with the standard library's decoder.
func TestAppendStringIsJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := nostrtest.Text().Draw(t, "s")
		var got string
		require.NoError(t, json.Unmarshal(nostr.AppendString(nil, s), &got))
		require.Equal(t, s, got)
	})
}

func TestAppendersAppend(t *testing.T) {
	t.Parallel()
	e := nostrtest.Event(t, "alice", nostrtest.Content("hi"))
	require.Equal(t, "x"+string(e.AppendJSON(nil)), string(e.AppendJSON([]byte("x"))))
	require.Equal(t, "x"+string(e.AppendCanonical(nil)), string(e.AppendCanonical([]byte("x"))))
}

func BenchmarkComputeID(b *testing.B) {
	e := nostrtest.Event(b, "alice", nostrtest.Channel("lobby"), nostrtest.Tag("p", nostrtest.PubKey("bob").String()),
		nostrtest.Content("a message of quite ordinary length, with a \"quote\" and a\nnew line in it"))
	b.ReportAllocs()
	for b.Loop() {
		_ = e.ComputeID()
	}
}
