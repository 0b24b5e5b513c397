package store

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/placement"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

var (
	noParent  = policy.Verdict{Reason: fault.Invalid, Message: "reply parent not found"}
	wrongRoot = policy.Verdict{Reason: fault.Invalid, Message: "root tag does not match thread ancestry"}
)

func root(c *policy.Candidate) nostrtest.Option  { return nostrtest.Tag("e", hexID(c), "", "root") }
func reply(c *policy.Candidate) nostrtest.Option { return nostrtest.Tag("e", hexID(c), "", "reply") }

// place returns the stored place of a reply in its thread.
func (f *fixture) place(c *policy.Candidate) (root, parent string, depth int, broadcast bool) {
	f.t.Helper()
	require.NoError(f.t, f.admin.QueryRow(f.t.Context(), `
SELECT encode(root_id, 'hex'), encode(parent_id, 'hex'), depth, broadcast FROM ingest.replies WHERE community_id = $1 AND id = $2`,
		c.Community, c.Event.ID[:]).Scan(&root, &parent, &depth, &broadcast))
	return root, parent, depth, broadcast
}

// counts returns how many replies an event has, directly and in its thread.
func (f *fixture) counts(c *policy.Candidate) [2]int {
	f.t.Helper()
	return [2]int{
		f.count(`SELECT coalesce(sum(replies), 0) FROM ingest.reply_counts WHERE community_id = $1 AND id = $2`, c.Community, c.Event.ID[:]),
		f.count(`SELECT coalesce(sum(descendants), 0) FROM ingest.reply_counts WHERE community_id = $1 AND id = $2`, c.Community, c.Event.ID[:]),
	}
}

func TestRepliesAreFiledInTheirThreads(t *testing.T) {
	f := newFixture(t)
	f.channel("general")
	first := f.chat("alice", "general", "first")
	f.accept(first)
	direct := f.chat("bob", "general", "direct", reply(first))
	both := f.chat("bob", "general", "both", root(first), reply(first), nostrtest.Tag("broadcast", "1"))
	f.accept(direct, both)
	nested := f.chat("carol", "general", "nested", root(first), reply(direct))
	short := f.candidate("carol", nostrtest.Kind(40002), nostrtest.Channel("general"), nostrtest.Content("short"), reply(direct))
	reference := f.chat("carol", "general", "a root alone", root(first))
	f.accept(nested, short, reference)
	late := f.chat("dave", "general", "of what refers to the root", root(first), reply(reference))
	f.accept(late)

	for _, c := range []struct {
		reply, parent *policy.Candidate
		depth         int
		broadcast     bool
	}{{direct, first, 1, false}, {both, first, 1, true}, {nested, direct, 2, false}, {short, direct, 2, false}, {late, reference, 2, false}} {
		r, p, depth, broadcast := f.place(c.reply)
		require.Equal(t, []any{hexID(first), hexID(c.parent), c.depth, c.broadcast}, []any{r, p, depth, broadcast}, c.reply.Event.Content)
	}
	require.Equal(t, 5, f.count(`SELECT count(*) FROM ingest.replies`))
	require.Equal(t, 4, f.count(`SELECT count(*) FROM ingest.events WHERE in_thread`))
	require.Equal(t, 4, f.count(`SELECT count(*) FROM ingest.events e JOIN ingest.replies r ON r.id = e.id WHERE e.in_thread AND NOT (r.broadcast AND r.depth = 1)`),
		"what a window of the channel does not show, and nothing else")
	require.Equal(t, [2]int{2, 5}, f.counts(first))
	require.Equal(t, [2]int{2, 0}, f.counts(direct))
	require.Equal(t, policy.Duplicate, f.verdict(nested))
	require.Equal(t, [2]int{2, 5}, f.counts(first), "counted once")
}

func TestRepliesThatFitNowhere(t *testing.T) {
	f := newFixture(t)
	f.channel("general")
	f.channel("other")
	f.channel("secret", nostrtest.Tag("private"))
	second := f.newCommunity("two.example", AccessOpen)
	first, another, elsewhere, hidden := f.chat("alice", "general", "1"), f.chat("alice", "general", "2"), f.chat("alice", "other", "3"), f.chat("owner", "secret", "4")
	deleted, note, foreign := f.chat("alice", "general", "5"), f.candidate("alice"), f.candidateIn(second, "alice")
	f.accept(first, another, elsewhere, hidden, deleted, note, foreign)
	direct := f.chat("bob", "general", "direct", reply(first))
	f.accept(f.candidate("alice", deletion(e(deleted))...), direct)
	missing := nostrtest.Tag("e", strings.Repeat("ab", 32), "", "reply")
	for name, parent := range map[string]nostrtest.Option{
		"missing": missing, "in another channel": reply(elsewhere), "hidden": reply(hidden), "deleted": reply(deleted),
		"in no channel": reply(note), "of another community": reply(foreign),
	} {
		require.Equal(t, noParent, f.verdict(f.chat("bob", "general", "x", parent)), name)
		require.Equal(t, noParent, f.verdict(f.chat("bob", "general", "x", root(first), parent)), name)
	}
	for name, tags := range map[string][]nostrtest.Option{
		"another root":         {root(another), reply(direct)},
		"a reply for a root":   {root(direct), reply(first)},
		"a root that is not":   {nostrtest.Tag("e", strings.Repeat("ab", 32), "", "root"), reply(first)},
		"a hidden root":        {root(hidden), reply(first)},
		"a root of no mention": {root(another), reply(first)},
	} {
		require.Equal(t, wrongRoot, f.verdict(f.chat("bob", "general", "x", tags...)), name)
	}
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.replies`))

	parent := direct
	for depth := 2; depth <= policy.MaxDepth; depth++ {
		next := f.chat("bob", "general", strconv.Itoa(depth), reply(parent))
		f.accept(next)
		parent = next
	}
	require.Equal(t, policy.Verdict{Reason: fault.Invalid, Message: "thread depth limit exceeded"}, f.verdict(f.chat("bob", "general", "x", reply(parent))))
	require.Equal(t, [2]int{1, policy.MaxDepth}, f.counts(first))
}

func TestDeletedRepliesAreNotCounted(t *testing.T) {
	f := newFixture(t)
	f.channel("general")
	first := f.chat("alice", "general", "first")
	f.accept(first)
	direct, other := f.chat("bob", "general", "direct", reply(first)), f.chat("carol", "general", "other", reply(first))
	f.accept(direct, other)
	nested := f.chat("carol", "general", "nested", reply(direct))
	f.accept(nested)
	f.accept(f.candidate("bob", deletion(e(direct), e(other))...))
	require.Equal(t, [2]int{1, 2}, f.counts(first), "the one of another author stays, and what answered the deleted one")
	f.accept(f.candidate("alice", deletion(e(first))...))
	require.Equal(t, [2]int{1, 2}, f.counts(first))
	f.accept(f.candidate("carol", deletion(e(other), e(nested))...))
	require.Equal(t, [2]int{0, 0}, f.counts(first))
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.replies`))
}

// Two replicas answer in the same threads, and delete some of that, at once.
func TestConcurrentReplies(t *testing.T) {
	const rounds, roots = 30, 5
	f := newFixture(t)
	f.channel("general")
	first := make([]*policy.Candidate, roots)
	for i := range first {
		first[i] = f.chat("alice", "general", strconv.Itoa(i))
	}
	f.accept(first...)
	var group errgroup.Group
	for replica, s := range []*Store{f.replica(), f.replica()} {
		group.Go(func() error {
			for round := range rounds {
				batch := make([]*policy.Candidate, 0, roots)
				for i := range first {
					target := first[(i*(replica*2-1)+roots)%roots] // in opposite order
					batch = append(batch, f.chat("author "+strconv.Itoa(replica), "general", strconv.Itoa(round), reply(target)))
				}
				if _, err := s.Commit(t.Context(), batch); err != nil {
					return err
				}
				if round%3 == 0 {
					if _, err := s.Commit(t.Context(), []*policy.Candidate{f.candidate("author "+strconv.Itoa(replica), deletion(e(batch[0]), e(batch[1]))...)}); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	left := f.count(`SELECT count(*) FROM ingest.replies`)
	require.Equal(t, 2*rounds*roots-2*2*rounds/3, left)
	require.Equal(t, left, f.count(`SELECT count(*) FROM ingest.events WHERE kind = 9`)-roots)
	require.Zero(t, f.count(`
SELECT count(*) FROM ingest.reply_counts c
WHERE c.replies <> (SELECT count(*) FROM ingest.replies r WHERE r.parent_id = c.id)
    OR c.descendants <> (SELECT count(*) FROM ingest.replies r WHERE r.root_id = c.id)`))
}

// summaryOf returns the relay's summary in an outbox row, nil if there is none.
func summaryOf(t *testing.T, row *Row, partition uint32) (*nostr.Event, map[string]any) {
	t.Helper()
	for _, envelope := range envelopes(t, row)[partition] {
		if envelope.GetHeader().GetKind() != uint32(nostr.KindThreadSummary) {
			continue
		}
		ev, err := wire.DecodeEvent(envelope.GetRaw(), wire.Limits{})
		require.NoError(t, err)
		require.NoError(t, ev.Verify())
		require.Equal(t, nostrtest.PubKey("relay"), ev.PubKey)
		h, _ := ev.Channel()
		require.Equal(t, h, envelope.GetHeader().GetChannel())
		var content map[string]any
		require.NoError(t, json.Unmarshal([]byte(ev.Content), &content))
		return ev, content
	}
	return nil, nil
}

func TestThreadSummaries(t *testing.T) {
	f := newFixture(t).withKey()
	f.channel("general")
	_, err := f.admin.Exec(t.Context(), `UPDATE ingest.channels SET acl_version = 7`)
	require.NoError(t, err)
	local := placement.Partition(f.community, "general", partitions)
	first := f.chat("alice", "general", "first")
	f.accept(first)
	said := func(batch ...*policy.Candidate) (*nostr.Event, map[string]any) {
		t.Helper()
		verdicts, row := f.commit(batch...)
		for _, v := range verdicts {
			require.Equal(t, policy.Verdict{}, v)
		}
		return summaryOf(t, row, local)
	}
	direct := f.chat("bob", "general", "direct", reply(first), nostrtest.CreatedAt(nostrtest.Epoch+5))
	ev, content := said(direct)
	id := first.Event.ID.String()
	require.Equal(t, nostr.Tags{{"e", id}, {"d", id}, {"h", "general"}}, ev.Tags)
	bob, carol := nostrtest.PubKey("bob").String(), nostrtest.PubKey("carol").String()
	require.Equal(t, map[string]any{
		"reply_count": 1.0, "descendant_count": 1.0, "last_reply_at": float64(nostrtest.Epoch + 5), "participants": []any{bob},
	}, content)

	nested := f.chat("carol", "general", "nested", reply(direct), nostrtest.CreatedAt(nostrtest.Epoch+9))
	older := f.chat("bob", "general", "older", reply(first), nostrtest.CreatedAt(nostrtest.Epoch+7))
	next, content := said(nested, older)
	require.Greater(t, next.CreatedAt, ev.CreatedAt, "clients keep the newest")
	require.Equal(t, map[string]any{
		"reply_count": 2.0, "descendant_count": 3.0, "last_reply_at": float64(nostrtest.Epoch + 9), "participants": []any{carol, bob},
	}, content)

	last, content := said(f.candidate("carol", deletion(e(nested))...))
	require.Greater(t, last.CreatedAt, next.CreatedAt)
	require.Equal(t, map[string]any{
		"reply_count": 2.0, "descendant_count": 2.0, "last_reply_at": float64(nostrtest.Epoch + 7), "participants": []any{bob},
	}, content)
	_, content = said(f.candidate("bob", deletion(e(direct), e(older))...))
	require.Equal(t, map[string]any{"reply_count": 0.0, "descendant_count": 0.0, "last_reply_at": nil, "participants": []any{}}, content)
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.events WHERE kind = 39005`), "never stored")

	// What has expired is not counted, although it is there until it is removed.
	fleeting := f.chat("carol", "general", "fleeting", reply(first), nostrtest.Tag("expiration", "4000000000"))
	f.accept(fleeting)
	expire := func(at int64) {
		_, err := f.admin.Exec(t.Context(), `UPDATE ingest.replies SET expires_at = $1 WHERE expires_at IS NOT NULL`, at)
		require.NoError(t, err)
	}
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.replies WHERE expires_at = 4000000000`))
	expire(nostrtest.Epoch)
	lasting := f.chat("bob", "general", "lasting", reply(first), nostrtest.CreatedAt(nostrtest.Epoch-1))
	_, content = said(lasting)
	require.Equal(t, map[string]any{
		"reply_count": 1.0, "descendant_count": 1.0, "last_reply_at": float64(nostrtest.Epoch - 1), "participants": []any{bob},
	}, content)
	expire(4_000_000_000)
	f.accept(f.candidate("carol", deletion(e(fleeting))...))
	_, content = said(f.candidate("bob", deletion(e(lasting))...))
	require.Equal(t, map[string]any{"reply_count": 0.0, "descendant_count": 0.0, "last_reply_at": nil, "participants": []any{}}, content)

	// An admin's deletion is one.
	moderated := f.chat("bob", "general", "moderated", reply(first))
	f.accept(moderated)
	_, content = said(f.command(f.community, "owner", nostr.KindDeleteEvent, nostrtest.Channel("general"), e(moderated)))
	require.Equal(t, map[string]any{"reply_count": 0.0, "descendant_count": 0.0, "last_reply_at": nil, "participants": []any{}}, content)

	// So are a moderator's, by command or over HTTP.
	var rows []*Row
	WithPublish(func(_ context.Context, row *Row) { rows = append(rows, row) })(f.Store)
	removed := f.chat("bob", "general", "removed", reply(first))
	f.accept(removed)
	f.moderate(BanEvent(removed.Event.ID))
	require.Len(t, rows, 1)
	_, content = summaryOf(t, rows[0], local)
	require.Equal(t, map[string]any{"reply_count": 0.0, "descendant_count": 0.0, "last_reply_at": nil, "participants": []any{}}, content)
	alone := f.chat("bob", "general", "alone")
	f.accept(alone)
	f.moderate(BanEvent(alone.Event.ID))
	require.Len(t, rows, 1, "nothing to say")

	// Of a root that is gone there is nothing to say.
	another := f.chat("bob", "general", "another", reply(first))
	f.accept(another, f.candidate("alice", deletion(e(first))...))
	ev, _ = said(f.chat("carol", "general", "still", reply(another)))
	require.Nil(t, ev)
}

// Of a thread that is erased in pages no counts stay, whether its root goes first or last.
func TestCountsGoWithTheirThreads(t *testing.T) {
	f := newFixture(t).withKey()
	f.channel("general")
	for i, step := range []int64{1, -1} {
		at := func(n int64) nostrtest.Option { return nostrtest.CreatedAt(nostrtest.Epoch + step*n) }
		first := f.chat("alice", "general", "first"+strconv.Itoa(i), at(10))
		f.accept(first)
		direct := f.chat("alice", "general", "direct", reply(first), at(20))
		f.accept(direct)
		f.accept(f.chat("alice", "general", "nested", reply(direct), at(30)))
	}
	require.Equal(t, 4, f.count(`SELECT count(*) FROM ingest.reply_counts`))
	v, _ := f.order(f.command(f.community, "owner", nostr.KindDeleteGroup, nostrtest.Channel("general")))
	require.Equal(t, policy.Verdict{}, v)
	for {
		n, err := f.SweepDeleted(t.Context(), time.Now().Add(time.Minute), 1)
		require.NoError(t, err)
		if n == 0 {
			break
		}
	}
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.replies`))
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.reply_counts`))
}
