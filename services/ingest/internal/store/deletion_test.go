package store

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/placement"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

func deletion(targets ...nostrtest.Option) []nostrtest.Option {
	return append([]nostrtest.Option{nostrtest.Kind(5), nostrtest.CreatedAt(nostrtest.Epoch)}, targets...)
}

func e(c *policy.Candidate) nostrtest.Option { return nostrtest.Tag("e", hexID(c)) }

func a(author, kind, d string) nostrtest.Option {
	return nostrtest.Tag("a", kind+":"+nostrtest.PubKey(author).String()+":"+d)
}

func TestDeletionByID(t *testing.T) {
	f := newFixture(t)
	mine := f.candidate("alice", nostrtest.Content("mine"), nostrtest.Tag("t", "x"), nostrtest.Tag("r", long("http://")))
	kept := f.candidate("alice", nostrtest.Content("kept"), nostrtest.Tag("t", "x"))
	other := f.candidate("bob", nostrtest.Content("bob's"), nostrtest.Tag("t", "x"))
	early := f.candidate("alice", nostrtest.Content("comes after its deletion"))
	f.accept(mine, kept, other)
	request := f.candidate("alice", deletion(e(mine), e(other), e(early))...)
	f.accept(request)
	f.requireStored(kept, other, request)

	for _, gone := range []*policy.Candidate{mine, early} {
		require.Equal(t, policy.Deleted, f.verdict(gone))
	}
	require.Equal(t, policy.Duplicate, f.verdict(other), "a request binds only its author's events")
	require.Equal(t, policy.Duplicate, f.verdict(request))
	f.requireStored(kept, other, request)

	// In another community nothing was deleted.
	second := f.newCommunity("two.example", AccessOpen)
	f.accept(f.candidateIn(second, "alice", nostrtest.Content("mine"), nostrtest.Tag("t", "x"), nostrtest.Tag("r", long("http://"))))
}

func TestForeignTombstoneBeforeTheEvent(t *testing.T) {
	f := newFixture(t)
	ev := f.candidate("alice", nostrtest.Content("hello"))
	request := f.candidate("mallory", deletion(e(ev))...)
	f.accept(request, ev)
	f.requireStored(request, ev)
}

func TestDeletionOfADeletion(t *testing.T) {
	f := newFixture(t)
	note := f.candidate("alice", nostrtest.Content("hello"))
	first := f.candidate("alice", deletion(e(note))...)
	second := f.candidate("alice", deletion(e(first))...)
	f.accept(note, first, second)
	f.requireStored(first, second)
	// Nor one that comes later.
	third := f.candidate("alice", deletion(e(note), nostrtest.Content("third"))...)
	f.accept(f.candidate("alice", deletion(e(third))...), third)
}

func TestDeletionByAddress(t *testing.T) {
	f := newFixture(t)
	article := func(author, d string, created int64) *policy.Candidate {
		return f.candidate(author, nostrtest.Kind(30023), nostrtest.Tag("d", d), nostrtest.CreatedAt(created))
	}
	mine, later, otherD := article("alice", "x", nostrtest.Epoch), article("alice", "later", nostrtest.Epoch+1), article("alice", "y", 1)
	bobs := article("bob", "x", 1)
	relays := f.candidate("alice", nostrtest.Kind(10002), nostrtest.CreatedAt(1))
	longD := article("alice", long("d")[:1000], 1)
	f.accept(mine, later, otherD, bobs, relays, longD)
	request := f.candidate("alice", deletion(a("alice", "30023", "x"), a("alice", "30023", "later"), a("bob", "30023", "x"),
		a("alice", "10002", ""), a("alice", "30023", long("d")[:1000]))...)
	f.accept(request)
	f.requireStored(later, otherD, bobs, request)

	require.Equal(t, policy.Deleted, f.verdict(mine))
	require.Equal(t, policy.Deleted, f.verdict(article("alice", "x", 5)), "every version up to the request")
	require.Equal(t, policy.Deleted, f.verdict(article("alice", "later", nostrtest.Epoch)), "covered, though a newer version stays")
	revived := article("alice", "x", nostrtest.Epoch+1)
	f.accept(revived)

	// An earlier request does not take back what a later one covers.
	f.accept(f.candidate("alice", nostrtest.Kind(5), nostrtest.CreatedAt(3), a("alice", "30023", "x")))
	require.Equal(t, policy.Deleted, f.verdict(article("alice", "x", 6)))
}

func TestDeletionOfAWinnerByID(t *testing.T) {
	f := newFixture(t)
	v1 := f.candidate("alice", nostrtest.Kind(0), nostrtest.Content("{}"), nostrtest.CreatedAt(1))
	v2 := f.candidate("alice", nostrtest.Kind(0), nostrtest.Content("[]"), nostrtest.CreatedAt(2))
	f.accept(v1, v2)
	request := f.candidate("alice", deletion(e(v2))...)
	f.accept(request)
	f.requireStored(request)
	require.Equal(t, policy.Deleted, f.verdict(v2))
	f.accept(v1)
	f.requireStored(request, v1)
}

func TestDeletionAndOthersInOneBatch(t *testing.T) {
	f := newFixture(t)
	old := f.candidate("alice", nostrtest.Content("old"))
	f.accept(old)
	request, bobs := f.candidate("alice", deletion(e(old))...), f.candidate("bob", nostrtest.Content("new"))
	verdicts, row := f.commit(request, bobs)
	require.Equal(t, []policy.Verdict{{}, {}}, verdicts)
	for _, list := range envelopes(t, row) {
		require.Len(t, list, 2, "requests are passed on like all events")
	}
	f.requireStored(request, bobs)
}

// A gift wrap's author has thrown the key away, so the recipient may have it deleted (NIP-59), before it
// comes too.
func TestDeletionOfAGiftWrapByItsRecipient(t *testing.T) {
	f := newFixture(t)
	wrap := func(content string, opts ...nostrtest.Option) *policy.Candidate {
		return f.candidate("throw-away", append(opts, nostrtest.Kind(1059), nostrtest.Content(content), nostrtest.Tag("p", nostrtest.PubKey("alice").String()))...)
	}
	mine, early, kept := wrap("mine"), wrap("early"), wrap("kept")
	note := f.candidate("bob", nostrtest.Content("names alice"), nostrtest.Tag("p", nostrtest.PubKey("alice").String()))
	f.accept(mine, kept, note)
	outsider := f.candidate("bob", deletion(e(mine), e(kept), e(early))...)
	f.accept(outsider)
	request := f.candidate("alice", deletion(e(mine), e(early), e(note))...)
	f.accept(request)
	f.requireStored(kept, note, outsider, request)
	for _, gone := range []*policy.Candidate{mine, early} {
		require.Equal(t, policy.Deleted, f.verdict(gone))
	}
	require.Equal(t, policy.Duplicate, f.verdict(kept))
	require.Equal(t, policy.Duplicate, f.verdict(note))

	second := f.newCommunity("two.example", AccessOpen)
	f.accept(f.candidateIn(second, "throw-away", nostrtest.Kind(1059), nostrtest.Content("mine"), nostrtest.Tag("p", nostrtest.PubKey("alice").String())))
}

// What one request covers is read while the community waits: it has to be split.
func TestDeletionOfTooMuch(t *testing.T) {
	f := newFixture(t)
	large := func(name string, opts ...nostrtest.Option) *policy.Candidate {
		return f.candidate("alice", append(opts, nostrtest.Content(name+strings.Repeat("x", 10_000)))...)
	}
	one, two, three := large("one"), large("two"), large("three")
	article := large("article", nostrtest.Kind(30023), nostrtest.Tag("d", "x"))
	neighbour := f.candidate("bob")
	f.accept(one, two, three, article)
	f.eraseBytes = 25_000

	request := f.candidate("alice", deletion(e(one), e(two), e(three))...)
	require.Equal(t, policy.DeletesTooMuch, f.verdict(request))
	verdicts, _ := f.commit(request, neighbour)
	require.Equal(t, []policy.Verdict{policy.DeletesTooMuch, {}}, verdicts)
	f.requireStored(one, two, three, article, neighbour)

	// Nothing remains of it: it may come again when there is less to do.
	part := f.candidate("alice", deletion(e(one), e(two))...)
	f.accept(part)
	f.accept(request)
	f.requireStored(article, neighbour, part, request)

	f.eraseBytes = 5_000
	byAddress := f.candidate("alice", deletion(a("alice", "30023", "x"))...)
	require.Equal(t, policy.DeletesTooMuch, f.verdict(byAddress))
	f.requireStored(article, neighbour, part, request)
	before := f.candidate("alice", deletion(a("alice", "30023", "x"), nostrtest.CreatedAt(nostrtest.Epoch-1))...)
	f.accept(before)
	f.requireStored(article, neighbour, part, request, before)
}

// A deletion without an h tag belongs to the channel of what it deletes.
func TestDeletionFollowsItsTarget(t *testing.T) {
	f := newFixture(t)
	f.channel("general")
	f.channel("secret", nostrtest.Tag("private"))
	note, message, hidden := f.candidate("alice", nostrtest.Content("note")), f.chat("alice", "general", "hello"), f.chat("owner", "secret", "psst")
	article := f.candidate("alice", nostrtest.Kind(30023), nostrtest.Tag("d", "x"), nostrtest.Channel("general"))
	bobs := f.chat("bob", "general", "mine")
	f.accept(note, message, hidden, article, bobs)
	loose := f.reaction("alice", "+", e(bobs))
	f.accept(loose)
	_, err := f.admin.Exec(t.Context(), `DELETE FROM ingest.channel_members`)
	require.NoError(t, err)
	_, err = f.admin.Exec(t.Context(), `UPDATE ingest.channels SET acl_version = CASE h WHEN 'secret' THEN 7 ELSE 1 END`)
	require.NoError(t, err)
	for _, c := range []struct {
		name    string
		request *policy.Candidate
		h       string
		version uint64
	}{
		{"of another's message", f.candidate("alice", deletion(e(bobs))...), "", 0},
		{"of what is not here", f.candidate("alice", deletion(nostrtest.Tag("e", strings.Repeat("ab", 32)))...), "", 0},
		{"of a reaction that has followed its target", f.candidate("alice", deletion(e(loose))...), "general", 1},
		{"of a note and a message", f.candidate("alice", deletion(e(bobs), e(note), e(message))...), "general", 1},
		{"by address", f.candidate("alice", deletion(a("alice", "30023", "x"))...), "general", 1},
		{"where the author was a member once", f.candidate("owner", deletion(e(hidden))...), "secret", 7},
	} {
		verdicts, row := f.commit(c.request)
		require.Equal(t, []policy.Verdict{{}}, verdicts, c.name)
		require.Equal(t, c.h, f.storedIn(c.request), c.name)
		sent := envelopes(t, row)[placement.Partition(f.community, c.h, partitions)]
		require.Len(t, sent, 1, c.name)
		require.Equal(t, c.h, sent[0].GetHeader().GetChannel(), c.name)
		require.Equal(t, c.version, sent[0].GetHeader().GetChannelAclVersion(), c.name)
	}
}
