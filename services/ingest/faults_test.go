package ingest_test

import (
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/testkit/faultproxy"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

// proxied sends a replica's database connections through a proxy.
func proxied(tb testing.TB) (*faultproxy.Proxy, option) {
	tb.Helper()
	direct, err := pgx.ParseConfig(pgtest.URL(tb))
	require.NoError(tb, err)
	target := net.JoinHostPort(direct.Host, strconv.Itoa(int(direct.Port)))
	if filepath.IsAbs(direct.Host) {
		target = filepath.Join(direct.Host, ".s.PGSQL."+strconv.Itoa(int(direct.Port)))
	}
	proxy := faultproxy.New(tb, target)
	through := url.URL{
		Scheme: "postgres", User: url.UserPassword(direct.User, direct.Password), Host: proxy.Addr(),
		Path: direct.Database, RawQuery: "sslmode=disable",
	}
	return proxy, func(o *options) { o.db.URL = config.NewSecret(through.String()) }
}

// notes makes n submissions.
func notes(tb testing.TB, community int64, author, text string, n int) []*ingestv1.Submission {
	tb.Helper()
	list := make([]*ingestv1.Submission, n)
	for i := range list {
		list[i] = by(community, event(tb, author, nostrtest.Content(text+strconv.Itoa(i))), author)
	}
	return list
}

// requireOnce checks that exactly these submissions were published, each once.
func requireOnce(tb testing.TB, got []*commonv1.Envelope, want ...*ingestv1.Submission) {
	tb.Helper()
	raw := func(n int, at func(int) []byte) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = string(at(i))
		}
		return list
	}
	require.ElementsMatch(tb,
		raw(len(want), func(i int) []byte { return want[i].GetRaw() }),
		raw(len(got), func(i int) []byte { return got[i].GetRaw() }))
}

func TestPostgresMayComeLateAndGo(t *testing.T) {
	h := newHarness(t)
	proxy, through := proxied(t)
	other := h.start("other") // has its own way to the database
	community := h.community(other, "one.example", open)
	proxy.Cut()
	r := h.start("one", through)
	c := h.open(r)
	list := notes(t, community, "alice", "note ", 10)

	for _, v := range c.verdicts(c.send(list...)...) {
		requireVerdict(t, overloaded, "cannot store events at the moment, try again", v)
	}
	_, err := r.directory.PutMember(t.Context(), &ingestv1.PutMemberRequest{Host: "one.example", Pubkey: list[0].GetPrincipal().GetPubkeys()[0], Role: "member"})
	require.Equal(t, codes.Unavailable, status.Code(err), err)

	proxy.Heal()
	for _, v := range c.verdicts(c.send(list...)...) {
		requireVerdict(t, accepted, "", v)
	}
	// Connections that died while they were idle are no fault of the events that get them, however many there are.
	for i := range 5 {
		r.fillPool(t)
		proxy.Reset()
		requireVerdict(t, accepted, "", c.offer(notes(t, community, "alice", "after reset "+strconv.Itoa(i), 1)[0]))
	}

	proxy.Cut()
	requireVerdict(t, overloaded, "cannot store events at the moment, try again", c.offer(notes(t, community, "alice", "lost ", 1)[0]))
	proxy.Heal()
	requireVerdict(t, duplicate, "already have this event", c.offer(list[0]))
}

func TestPostgresHangs(t *testing.T) {
	h := newHarness(t)
	proxy, through := proxied(t)
	r := h.start("one", through, func(o *options) { o.cfg.CommitTimeout = 500 * time.Millisecond })
	community := h.community(r, "one.example", open)
	c := h.open(r)
	c.accept(notes(t, community, "alice", "before ", 1)...)
	proxy.Blackhole()
	stuck := notes(t, community, "alice", "stuck ", 1)[0]
	requireVerdict(t, overloaded, "cannot store events at the moment, try again", c.offer(stuck))
	proxy.Heal()
	c.accept(notes(t, community, "alice", "after ", 1)...)
}

func TestNATSMayComeLateAndGo(t *testing.T) {
	h := newHarness(t)
	h.nats.Stop(t)
	r := h.start("one")
	community := h.community(r, "one.example", open)
	c := h.open(r)
	first := notes(t, community, "alice", "before NATS ", 20)
	c.accept(first[:10]...)
	for _, v := range c.verdicts(c.send(first[10:]...)...) {
		requireVerdict(t, accepted, "", v)
	}
	require.NotZero(t, h.count(`SELECT count(*) FROM ingest.outbox`))
	h.nats.Restart(t)
	l := h.events()
	l.await(t, 20)
	h.awaitEmptyOutbox()

	h.nats.Stop(t)
	second := notes(t, community, "alice", "without NATS ", 20)
	for _, v := range c.verdicts(c.send(second...)...) {
		requireVerdict(t, accepted, "", v)
	}
	h.nats.Restart(t)
	third := notes(t, community, "alice", "with NATS ", 20)
	for _, v := range c.verdicts(c.send(third...)...) {
		requireVerdict(t, accepted, "", v)
	}
	all := append(append(first, second...), third...)
	l.await(t, len(all))
	h.awaitEmptyOutbox()
	requireOnce(t, h.published(), all...)
}

// TestCrashBetweenCommitAndPublish stops a replica, without a drain, that has committed what it could not
// publish; two others find it.
func TestCrashBetweenCommitAndPublish(t *testing.T) {
	h := newHarness(t)
	r := h.start("one", func(o *options) { o.cfg.OutboxInterval = time.Hour })
	community := h.community(r, "one.example", open)
	h.awaitStreams()
	h.nats.Stop(t)
	list := notes(t, community, "alice", "note ", 100)
	c := h.open(r)
	c.accept(list[:50]...)
	for _, v := range c.verdicts(c.send(list[50:]...)...) {
		requireVerdict(t, accepted, "", v)
	}
	require.NoError(t, r.stop(false))
	rows := h.count(`SELECT count(*) FROM ingest.outbox`)
	require.Greater(t, rows, 50, "each of the first was a commit of its own")

	h.nats.Restart(t)
	h.start("two")
	h.start("three")
	h.awaitEmptyOutbox()
	requireOnce(t, h.published(), list...)
	state, err := h.nats.Connect(t).StreamState(t.Context(), subject.StreamEvents)
	require.NoError(t, err)
	require.EqualValues(t, rows, state.LastSeq, "one message for each row")
}

// TestRepublishedRowsAreStoredOnce puts rows back that were published already.
func TestRepublishedRowsAreStoredOnce(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	community := h.community(r, "one.example", open)
	_, err := h.admin.Exec(t.Context(), `
CREATE FUNCTION pg_temp_keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER keep BEFORE DELETE ON ingest.outbox FOR EACH ROW EXECUTE FUNCTION pg_temp_keep()`)
	require.NoError(t, err)
	list := notes(t, community, "alice", "note ", 5)
	h.open(r).accept(list...)
	h.events().await(t, len(list))
	// The sweeper finds the rows again and again now; the trigger counts that.
	_, err = h.admin.Exec(t.Context(), `
CREATE TABLE swept (n bigint); GRANT ALL ON swept TO apiary_ingest; GRANT USAGE ON SCHEMA public TO apiary_ingest;
CREATE OR REPLACE FUNCTION pg_temp_keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.swept VALUES (OLD.id); RETURN NULL; END $$`)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // nobody tells when a sweep has been
		return h.count(`SELECT count(*) FROM swept`) >= 10
	}, patience, 10*time.Millisecond)
	_, err = h.admin.Exec(t.Context(), `DROP TRIGGER keep ON ingest.outbox`)
	require.NoError(t, err)
	h.awaitEmptyOutbox()
	requireOnce(t, h.published(), list...)
}

// TestRowsThatCannotBePublishedHoldUpNobody has more than a page of them in front of what waits for NATS.
func TestRowsThatCannotBePublishedHoldUpNobody(t *testing.T) {
	const broken = 50
	h := newHarness(t)
	r := h.start("one")
	community := h.community(r, "one.example", open)
	h.awaitStreams()
	h.nats.Stop(t)
	_, err := h.admin.Exec(t.Context(), `INSERT INTO ingest.outbox (payload, created_at) SELECT '\xff', now() - interval '1 day' FROM generate_series(1, $1)`, broken)
	require.NoError(t, err)
	list := notes(t, community, "alice", "note ", 20)
	h.open(r).accept(list...)
	h.nats.Restart(t)
	requireOnce(t, h.events().await(t, len(list)), list...)
	require.Eventually(t, func() bool { // the last of them is deleted, and nobody is told
		return h.count(`SELECT count(*) FROM ingest.outbox`) == broken
	}, patience, 10*time.Millisecond)
}

func TestDrain(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	community := h.community(r, "one.example", open)
	h.awaitStreams()
	c := h.open(r)
	list := notes(t, community, "alice", "note ", 200)
	c.accept(list[0])
	refs := c.send(list[1:]...)
	require.NoError(t, r.stop(true))

	// What was answered with OK is stored and published, and everything else was refused or its stream ended.
	stored := 1
	for {
		resp, err := c.stream.Recv()
		if err != nil {
			require.Equal(t, codes.Unavailable, status.Code(err), err)
			break
		}
		for _, v := range resp.GetVerdicts() {
			require.Contains(t, refs, v.GetRef())
			if v.GetReason() == accepted {
				stored++
			} else {
				require.Equal(t, overloaded, v.GetReason())
			}
		}
	}
	require.Equal(t, stored, h.count(`SELECT count(*) FROM ingest.events`))
	require.Zero(t, h.count(`SELECT count(*) FROM ingest.outbox`), "drain publishes what was committed")
	require.Len(t, h.published(), stored)
}

// TestBrokenStream ends a stream without reading verdicts: what was read is stored nevertheless.
func TestBrokenStream(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	community := h.community(r, "one.example", open)
	list := notes(t, community, "alice", "note ", 50)
	c := h.open(r)
	c.accept(list[0])
	c.send(list[1:]...)
	require.NoError(t, r.stop(false))
	stored := h.count(`SELECT count(*) FROM ingest.events`)

	again := h.start("two")
	c = h.open(again)
	duplicates := 0
	for _, v := range c.verdicts(c.send(list...)...) {
		if v.GetReason() == duplicate {
			duplicates++
		} else {
			requireVerdict(t, accepted, "", v)
		}
	}
	require.Equal(t, stored, duplicates)
	require.Equal(t, len(list), h.count(`SELECT count(*) FROM ingest.events`))
	requireOnce(t, h.published(), list...)
}

// TestOneBadEventHarmsNobody makes the database refuse some events of a batch.
func TestOneBadEventHarmsNobody(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	community := h.community(r, "one.example", open)
	_, err := h.admin.Exec(t.Context(), `ALTER TABLE ingest.events ADD CONSTRAINT no_poison CHECK (encode(raw, 'escape') NOT LIKE '%poison%')`)
	require.NoError(t, err)
	good, bad := notes(t, community, "alice", "note ", 60), notes(t, community, "bob", "poison ", 3)
	list := append(append(append(append([]*ingestv1.Submission{}, good[:20]...), bad[:2]...), good[20:]...), bad[2])
	c := h.open(r)
	for i, v := range c.verdicts(c.send(list...)...) {
		if i == 20 || i == 21 || i == len(list)-1 {
			require.Equal(t, commonv1.Reason_REASON_INTERNAL, v.GetReason())
			require.Regexp(t, `^internal \(ref [0-9a-f]{8}\)$`, v.GetMessage())
		} else {
			requireVerdict(t, accepted, "", v)
		}
	}
	requireOnce(t, h.published(), good...)
}
