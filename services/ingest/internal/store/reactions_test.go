package store

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/placement"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

var noReactionTarget = policy.Verdict{Reason: fault.Invalid, Message: "reaction target event not found"}

// channel makes a channel of owner's.
func (f *fixture) channel(h string, opts ...nostrtest.Option) {
	f.t.Helper()
	f.accept(f.candidate("owner", create(append(opts, nostrtest.Channel(h))...)...))
}

func (f *fixture) chat(author, h, content string, opts ...nostrtest.Option) *policy.Candidate {
	f.t.Helper()
	return f.candidate(author, append([]nostrtest.Option{nostrtest.Kind(nostr.KindChat), nostrtest.Channel(h), nostrtest.Content(content)}, opts...)...)
}

func (f *fixture) reaction(author, emoji string, opts ...nostrtest.Option) *policy.Candidate {
	f.t.Helper()
	return f.candidate(author, append([]nostrtest.Option{nostrtest.Kind(nostr.KindReaction), nostrtest.Content(emoji)}, opts...)...)
}

// storedIn returns the h value of the channel that an event is stored in, empty for none.
func (f *fixture) storedIn(c *policy.Candidate) string {
	f.t.Helper()
	var h string
	require.NoError(f.t, f.admin.QueryRow(f.t.Context(), `
SELECT coalesce(c.h, '') FROM ingest.events e LEFT JOIN ingest.channels c ON c.community_id = e.community_id AND c.id = e.channel_id
WHERE e.community_id = $1 AND e.id = $2`, c.Community, c.Event.ID[:]).Scan(&h))
	return h
}

// A reaction without an h tag belongs to the channel of its target: stored there, passed on there, under the
// channel's access version.
func TestReactionFollowsItsTarget(t *testing.T) {
	f := newFixture(t)
	f.channel("general")
	f.channel("secret", nostrtest.Tag("private"))
	_, err := f.admin.Exec(t.Context(), `UPDATE ingest.channels SET acl_version = CASE h WHEN 'secret' THEN 7 ELSE 1 END`)
	require.NoError(t, err)
	note, message, hidden := f.candidate("alice", nostrtest.Content("note")), f.chat("alice", "general", "hello"), f.chat("owner", "secret", "psst")
	f.accept(note, message, hidden)

	for _, c := range []struct {
		name     string
		reaction *policy.Candidate
		h        string
		version  uint64
	}{
		{"of a message", f.reaction("bob", "+", e(message)), "general", 1},
		{"of a hidden message, by a member", f.reaction("owner", "+", e(hidden)), "secret", 7},
		{"the last e tag counts, of those that name an event", f.reaction("bob", "-", e(note), e(message), nostrtest.Tag("e", "nonsense"), nostrtest.Tag("e")), "general", 1},
		{"of a note", f.reaction("bob", "+", e(note)), "", 0},
		{"by a stranger to the channel", f.reaction("bob", "+", e(hidden)), "", 0},
		{"of what is not here", f.reaction("bob", "+", nostrtest.Tag("e", strings.Repeat("ab", 32))), "", 0},
		{"of nothing", f.reaction("bob", "x"), "", 0},
	} {
		verdicts, row := f.commit(c.reaction)
		require.Equal(t, []policy.Verdict{{}}, verdicts, c.name)
		require.Equal(t, c.h, f.storedIn(c.reaction), c.name)
		sent := envelopes(t, row)[placement.Partition(f.community, c.h, partitions)]
		require.Len(t, sent, 1, c.name)
		require.Equal(t, c.h, sent[0].GetHeader().GetChannel(), c.name)
		require.Equal(t, c.version, sent[0].GetHeader().GetChannelAclVersion(), c.name)
		require.Equal(t, string(c.reaction.Raw), string(sent[0].GetRaw()), c.name)
	}
}

// In a channel a reaction needs a target that is there; why there is none is not told.
func TestReactionTargetInAChannel(t *testing.T) {
	f := newFixture(t)
	f.channel("general")
	f.channel("other")
	f.channel("secret", nostrtest.Tag("private"))
	second := f.newCommunity("two.example", AccessOpen)
	present, elsewhere, hidden := f.chat("alice", "general", "present"), f.chat("alice", "other", "elsewhere"), f.chat("owner", "secret", "hidden")
	deleted, expired, vanished := f.chat("alice", "general", "deleted"), f.chat("alice", "general", "expired"), f.chat("carol", "general", "vanished")
	wrap, note := f.candidate("alice", nostrtest.Kind(nostr.KindGiftWrap), nostrtest.Channel("general")), f.candidate("alice")
	foreign := f.candidateIn(second, "alice", nostrtest.Content("foreign"))
	f.accept(present, elsewhere, hidden, deleted, expired, vanished, wrap, note, foreign)
	f.accept(f.candidate("alice", deletion(e(deleted))...))
	_, err := f.admin.Exec(t.Context(), `UPDATE ingest.events SET expires_at = 1 WHERE id = $1`, expired.Event.ID[:])
	require.NoError(t, err)
	_, err = f.admin.Exec(t.Context(), `INSERT INTO ingest.vanished VALUES ($1, $2, $3, '\x00')`, f.community, vanished.Event.PubKey[:], vanished.Event.CreatedAt)
	require.NoError(t, err)

	f.accept(f.reaction("bob", "+", e(present), nostrtest.Channel("general")))
	for name, target := range map[string]nostrtest.Option{
		"missing":              nostrtest.Tag("e", strings.Repeat("ab", 32)),
		"in another channel":   e(elsewhere),
		"hidden":               e(hidden),
		"in no channel":        e(note),
		"deleted":              e(deleted),
		"expired":              e(expired),
		"of a key that left":   e(vanished),
		"for its parties":      e(wrap),
		"of another community": e(foreign),
	} {
		require.Equal(t, noReactionTarget, f.verdict(f.reaction("bob", "+", target, nostrtest.Channel("general"))), name)
	}
}

func TestOneReactionOfAKind(t *testing.T) {
	f := newFixture(t)
	f.channel("general")
	message, note := f.chat("alice", "general", "hello"), f.candidate("alice")
	f.accept(message, note)
	at := nostrtest.CreatedAt
	first := f.reaction("bob", "+", e(message))
	f.accept(first)
	for name, again := range map[string]*policy.Candidate{
		"the same":            f.reaction("bob", "+", e(message), at(1)),
		"empty is a like":     f.reaction("bob", "", e(message), at(2)),
		"with its channel":    f.reaction("bob", "+", e(message), nostrtest.Channel("general")),
		"after another e tag": f.reaction("bob", "+", e(note), e(message)),
	} {
		require.Equal(t, policy.ReactionExists, f.verdict(again), name)
	}
	others := []*policy.Candidate{
		f.reaction("bob", "-", e(message)), f.reaction("carol", "+", e(message)), f.reaction("bob", "+", e(note)),
		f.reaction("bob", "a\x00b", e(message)), // an emoji that Postgres has no text for
		f.reaction("bob", "+", nostrtest.Tag("e", strings.Repeat("ab", 32))), f.reaction("bob", "+", nostrtest.Tag("e", strings.Repeat("ab", 32)), at(1)),
	}
	f.accept(others...)
	require.Equal(t, policy.Duplicate, f.verdict(first))

	// In one batch the one is accepted, and its neighbour is not harmed.
	batch := []*policy.Candidate{f.reaction("dave", "+", e(message)), f.reaction("dave", "+", e(message), at(1)), f.candidate("dave")}
	verdicts, _ := f.commit(batch...)
	require.ElementsMatch(t, []policy.Verdict{{}, policy.ReactionExists}, verdicts[:2])
	require.Equal(t, policy.Verdict{}, verdicts[2])
	require.Equal(t, f.count(`SELECT count(*) FROM ingest.events`), f.count(`SELECT count(*) FROM ingest.event_ids`), "what was refused left its id")

	// A deletion frees the place; what is refused as deleted does not take it again.
	request := f.candidate("bob", deletion(e(first))...)
	f.accept(request)
	require.Equal(t, policy.Deleted, f.verdict(first))
	again := f.reaction("bob", "", e(message), at(3))
	f.accept(again)
	require.Equal(t, policy.ReactionExists, f.verdict(f.reaction("bob", "+", e(message), at(4))))
}

// What is stored already is a duplicate, whatever became of its target.
func TestReactionComesAgainAfterItsTarget(t *testing.T) {
	f := newFixture(t)
	f.channel("general")
	message := f.chat("alice", "general", "hello")
	loose, bound := f.reaction("bob", "+", e(message)), f.reaction("carol", "+", e(message), nostrtest.Channel("general"))
	f.accept(message, loose, bound, f.candidate("alice", deletion(e(message))...))
	require.Equal(t, policy.Duplicate, f.verdict(loose))
	require.Equal(t, policy.Duplicate, f.verdict(bound))
}

func TestConcurrentReactions(t *testing.T) {
	const rounds, keys = 40, 10
	f := newFixture(t)
	f.channel("general")
	message := f.chat("alice", "general", "hello")
	f.accept(message)
	stores := []*Store{f.replica(), f.replica()}
	accepted := make([][]int, len(stores))
	var group errgroup.Group
	for i, s := range stores {
		accepted[i] = make([]int, keys)
		group.Go(func() error {
			for round := range rounds {
				batch := make([]*policy.Candidate, keys)
				for k := range batch {
					author := (k*(i*2-1) + keys) % keys // the replicas go through them in opposite order
					batch[k] = f.reaction(strconv.Itoa(author), "+", e(message), nostrtest.CreatedAt(int64(round*2+i)))
				}
				result, err := s.Commit(t.Context(), batch)
				if err != nil {
					return err
				}
				for k, v := range result.Verdicts {
					if v.Accepted() {
						accepted[i][(k*(i*2-1)+keys)%keys]++
					}
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	for k := range keys {
		require.Equal(t, 1, accepted[0][k]+accepted[1][k], "author %d", k)
	}
	require.Equal(t, keys, f.count(`SELECT count(*) FROM ingest.reactions`))
	require.Equal(t, keys+2, f.count(`SELECT count(*) FROM ingest.events`))
	require.Equal(t, keys+2, f.count(`SELECT count(*) FROM ingest.event_ids`))
}

// TestReactionHoldsTheChannel: whoever changes a channel's access waits for reactions that belong there, and they
// for whoever changes it, although the channel is known only by the target.
func TestReactionHoldsTheChannel(t *testing.T) {
	f := newFixture(t)
	f.channel("general")
	message := f.chat("alice", "general", "hello")
	f.accept(message)
	release := f.hold(channelLock(message.ChannelKey()), true)
	verdict := make(chan policy.Verdict, 1)
	go func() {
		defer close(verdict)
		if result, err := f.Commit(t.Context(), []*policy.Candidate{f.reaction("bob", "+", e(message))}); err == nil {
			verdict <- result.Verdicts[0]
		}
	}()
	f.awaitWaiters("advisory", 1)
	_, err := f.admin.Exec(t.Context(), `UPDATE ingest.channels SET archived_at = now()`)
	require.NoError(t, err)
	release()
	require.Equal(t, policy.Verdict{Reason: fault.Invalid, Message: "channel is archived"}, <-verdict)
}

// What is in a channel that was deleted is there for nobody, although it is removed later.
func TestReactionInADeletedChannel(t *testing.T) {
	f := newFixture(t)
	f.channel("general")
	message := f.chat("alice", "general", "hello")
	f.accept(message)
	_, err := f.admin.Exec(t.Context(), `DELETE FROM ingest.channels`)
	require.NoError(t, err)
	for i := range 2 {
		loose := f.reaction("bob", "+", e(message), nostrtest.CreatedAt(int64(i)))
		f.accept(loose)
		require.Empty(t, f.storedIn(loose))
	}
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.reactions`))
}

// A reaction that follows its target into a channel brings the channel's rules along for nobody else in the batch.
func TestReactionBesideMessages(t *testing.T) {
	f := newFixture(t)
	f.channel("general")
	message := f.chat("alice", "general", "hello")
	f.accept(message)
	_, err := f.admin.Exec(t.Context(), `UPDATE ingest.channels SET previous_required = true`)
	require.NoError(t, err)
	alone, _ := f.commit(f.chat("carol", "general", "refers to nothing"))
	require.False(t, alone[0].Accepted())
	verdicts, _ := f.commit(f.reaction("bob", "+", e(message)), f.chat("carol", "general", "refers to nothing"))
	require.Equal(t, []policy.Verdict{{}, alone[0]}, verdicts)
}

// Postgres makes the same keys of channels as channelLock.
func TestLocksOfTargets(t *testing.T) {
	f := newFixture(t)
	var communities []int64
	var ids [][]byte
	var want []int64
	for _, h := range []string{"a", "A-_9", strings.Repeat("x", 64)} {
		f.channel(h)
		message := f.chat("alice", h, "hello")
		f.accept(message)
		communities, ids, want = append(communities, f.community), append(ids, message.Event.ID[:]), append(want, channelLock(message.ChannelKey()))
	}
	own := communityLock(f.community)
	rows, err := f.admin.Query(t.Context(), sqlLockWithTargets, []int64{own}, []bool{true}, communities, ids)
	require.NoError(t, err)
	var got []int64
	var key int64
	_, err = pgx.ForEachRow(rows, []any{&key, nil}, func() error {
		got = append(got, key)
		return nil
	})
	require.NoError(t, err)
	slices.Sort(want)
	require.Equal(t, append([]int64{own}, want...), got, "in ascending order")
}
