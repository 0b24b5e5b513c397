package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// vanish is a request to vanish from the first community of a fixture, made at created.
func vanish(created int64, opts ...nostrtest.Option) []nostrtest.Option {
	return append([]nostrtest.Option{nostrtest.Kind(62), nostrtest.CreatedAt(created), nostrtest.Tag("relay", "wss://one.example/")}, opts...)
}

func p(name string) nostrtest.Option { return nostrtest.Tag("p", nostrtest.PubKey(name).String()) }

func TestVanish(t *testing.T) {
	f := newFixture(t)
	second := f.newCommunity("two.example", AccessOpen)
	const at = nostrtest.Epoch + 10
	note := f.candidate("alice", nostrtest.Tag("t", "x"), nostrtest.CreatedAt(at))
	profile := f.candidate("alice", nostrtest.Kind(0), nostrtest.Content("{}"))
	wrap := f.candidate("throw-away", nostrtest.Kind(1059), p("bob"), p("alice"))
	gone := []*policy.Candidate{note, profile, wrap, f.candidate("alice", deletion(e(note), nostrtest.Content("x"))...)}
	f.accept(note, profile, wrap)
	f.accept(f.candidate("alice", deletion(nostrtest.Tag("e", hexID(f.candidate("alice", nostrtest.Content("other")))))...))
	elsewhere := f.candidateIn(second, "alice", nostrtest.Tag("t", "x"))
	kept := []*policy.Candidate{
		f.candidate("alice", nostrtest.Content("later"), nostrtest.CreatedAt(at+1)),
		f.candidate("bob", p("alice"), nostrtest.Content("about alice")),
		f.candidate("throw-away", nostrtest.Kind(1059), p("bob")),
		f.candidate("throw-away", nostrtest.Kind(1059), p("alice"), nostrtest.CreatedAt(at+1)),
		elsewhere,
	}
	f.accept(kept...)

	request := f.candidate("alice", vanish(at)...)
	verdicts, row := f.commit(request)
	require.Equal(t, []policy.Verdict{{}}, verdicts)
	require.NotNil(t, row, "requests are passed on like all events")
	kept = append(kept, request)
	f.requireStored(kept...)
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.vanished WHERE until = $1 AND request_id = $2`, at, request.Event.ID[:]))

	for _, c := range gone {
		require.Equal(t, policy.Vanished, f.verdict(c), "kind %d", c.Event.Kind)
	}
	require.Equal(t, policy.Duplicate, f.verdict(request))
	f.requireStored(kept...)

	// Nothing takes the request back: neither a deletion nor an older request.
	undo := f.candidate("alice", nostrtest.Kind(5), nostrtest.CreatedAt(at+2), e(request))
	older := f.candidate("alice", vanish(at-5)...)
	f.accept(undo, older)
	f.requireStored(append(kept, undo, older)...)
	require.Equal(t, policy.Vanished, f.verdict(note))
}

func TestVanishIsForWhoIsNamed(t *testing.T) {
	f := newFixture(t)
	second := f.newCommunity("one.example:3000", AccessOpen)
	request := func(community int64, relays ...string) *policy.Candidate {
		opts := []nostrtest.Option{nostrtest.Kind(62)}
		for _, r := range relays {
			opts = append(opts, nostrtest.Tag("relay", r))
		}
		return f.candidateIn(community, "alice", opts...)
	}
	for _, c := range []struct {
		name      string
		community int64
		relays    []string
		want      policy.Verdict
	}{
		{"by its name", f.community, []string{"wss://ONE.example"}, policy.Verdict{}},
		{"without TLS, among others", f.community, []string{"nonsense", "wss://other.example", "ws://one.example:80/"}, policy.Verdict{}},
		{"with a port that nobody else has", f.community, []string{"ws://one.example:7777"}, policy.Verdict{}},
		{"all", f.community, []string{"ALL_RELAYS"}, policy.Verdict{}},
		{"with the port of another", f.community, []string{"ws://one.example:3000"}, policy.NotHere},
		{"whose port it is", second, []string{"ws://one.example:3000"}, policy.Verdict{}},
		{"without its port", second, []string{"ws://one.example"}, policy.NotHere},
		{"another", f.community, []string{"wss://other.example"}, policy.NotHere},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, f.verdict(request(c.community, c.relays...))) })
	}
}

// TestVanishFromWhereOneMayNotWrite: a relay follows the request regardless of who asks (NIP-62).
func TestVanishFromWhereOneMayNotWrite(t *testing.T) {
	f := newFixture(t)
	note := f.candidate("alice")
	f.accept(note)
	f.moderate(BanPubKey(nostrtest.PubKey("alice")))
	f.moderate(AllowKind(9))
	f.moderate(Describe(Description{MinPow: new(int16(60))}))
	_, err := f.UpdateCommunity(t.Context(), f.community, CommunityChange{Access: new(AccessClosed)})
	require.NoError(t, err)
	request := f.candidate("alice", vanish(nostrtest.Epoch)...)
	f.accept(request)
	f.requireStored(request)
}

func TestVanishLeavesTheRestToTheSweep(t *testing.T) {
	f := newFixture(t)
	const n = vanishPage + 20
	batch := make([]*policy.Candidate, 0, 2*n)
	for _, ev := range nostrtest.Filler(t, "alice", n, nostrtest.CreatedAt(nostrtest.Epoch)) {
		batch = append(batch, f.candidate("alice", nostrtest.Content(ev.Content)), f.candidate("throw-away", nostrtest.Kind(1059), p("alice"), nostrtest.Content(ev.Content)))
	}
	verdicts, _ := f.commit(batch...)
	require.Len(t, verdicts, 2*n)
	bobs, request := f.candidate("bob"), f.candidate("alice", vanish(nostrtest.Epoch)...)
	f.accept(bobs)
	result, err := f.Commit(t.Context(), []*policy.Candidate{request})
	require.NoError(t, err)
	require.True(t, result.Left)
	require.Equal(t, 2+40, f.count(`SELECT count(*) FROM ingest.events`))

	total := 0
	for {
		removed, err := f.SweepVanished(t.Context(), 10)
		require.NoError(t, err)
		if total += removed; removed == 0 {
			break
		}
	}
	require.Equal(t, 40, total)
	f.requireStored(bobs, request)

	result, err = f.Commit(t.Context(), []*policy.Candidate{f.candidate("alice", vanish(nostrtest.Epoch+1)...)})
	require.NoError(t, err)
	require.False(t, result.Left)
}
