package commit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// item is an Item that remembers its answers.
type item struct {
	n         int
	candidate *policy.Candidate
	answers   []policy.Verdict
}

func (i *item) Candidate() *policy.Candidate { return i.candidate }
func (i *item) Answer(v policy.Verdict)      { i.answers = append(i.answers, v) }

// make returns an item of an unsigned event: what is decided here needs no signature.
func makeItem(n int, client, author byte, ev nostr.Event) *item {
	ev.PubKey = nostr.PubKey{author}
	if ev.ID.IsZero() {
		ev.ID = nostr.ID{byte(n >> 8), byte(n), 1}
	}
	c := &policy.Candidate{
		Submission: policy.Submission{Community: 1, Raw: make([]byte, 100), Principal: []nostr.PubKey{{client}}},
		Event:      &ev,
	}
	if h, ok := ev.Channel(); ok {
		c.Channel = h
	}
	switch ev.Kind {
	case nostr.KindDeletion:
		c.Deletion = &policy.Deletion{}
	case nostr.KindVanish:
		c.Vanish = &policy.Vanish{}
	case nostr.KindPutUser, nostr.KindCreateGroup, nostr.KindRelayAddMember:
		c.Command = &policy.Command{FollowUps: policy.FollowUpBytes}
	case nostr.KindOpenConversation:
		c.Command = &policy.Command{Conversations: true}
	case nostr.KindReaction:
		if r, ok := policy.ReactionOf(&ev); ok {
			c.Reaction = &r
		}
	default:
	}
	return &item{n: n, candidate: c}
}

// elsewhere moves an item to another community.
func elsewhere(i *item) *item {
	i.candidate.Community = 2
	return i
}

func numbers(items []Item) []int {
	list := make([]int, len(items))
	for i, it := range items {
		list[i] = it.(*item).n
	}
	return list
}

func always(l Limits) func() Limits { return func() Limits { return l } }

var (
	wide  = Limits{Events: 1000, Bytes: 1 << 20, Topics: 100}
	ample = Limits{Events: 1000, Bytes: 16 << 20, Topics: 100}
)

func TestPick(t *testing.T) {
	note := nostr.Event{Kind: 1}
	profile := nostr.Event{Kind: 0}
	deletion := nostr.Event{Kind: 5}
	vanish := nostr.Event{Kind: 62}
	wrap := nostr.Event{Kind: 1059}
	in := func(kind nostr.Kind, h string) nostr.Event {
		return nostr.Event{Kind: kind, Tags: nostr.Tags{{"h", h}}}
	}
	same := nostr.Event{Kind: 1, ID: nostr.ID{9}}
	to := func(id nostr.ID) nostr.Event { return nostr.Event{Kind: 7, Tags: nostr.Tags{{"e", id.String()}}} }
	for _, c := range []struct {
		name    string
		limits  Limits
		waiting []*item
		batch   []int
	}{
		{"what is independent goes together", wide, []*item{makeItem(0, 1, 1, note), makeItem(1, 1, 1, note), makeItem(2, 2, 2, note)}, []int{0, 1, 2}},
		{"up to so many", Limits{Events: 2, Bytes: 1 << 20, Topics: 9}, []*item{makeItem(0, 1, 1, note), makeItem(1, 1, 1, note), makeItem(2, 2, 2, note)}, []int{0, 1}},
		{"up to so many bytes", Limits{Events: 9, Bytes: 1000, Topics: 9}, []*item{makeItem(0, 1, 1, note), makeItem(1, 1, 1, note), makeItem(2, 2, 2, note)}, []int{0, 1}},
		{"one always", Limits{Events: 9, Bytes: 1, Topics: 1}, []*item{makeItem(0, 1, 1, in(9, "a")), makeItem(1, 1, 1, note)}, []int{0}},
		{"up to so many topics", Limits{Events: 9, Bytes: 1 << 20, Topics: 3}, []*item{
			makeItem(0, 1, 1, in(9, "a")), makeItem(1, 1, 1, in(9, "a")), makeItem(2, 2, 2, in(9, "b")), makeItem(3, 3, 3, in(9, "c")), makeItem(4, 4, 4, in(9, "a")),
		}, []int{0, 1, 2, 4}},
		{"up to so many erasures", Limits{Events: 9, Bytes: 1 << 20, Erasures: 2, Topics: 9}, []*item{
			makeItem(0, 1, 1, profile), makeItem(1, 2, 2, note), makeItem(2, 3, 3, profile), makeItem(3, 4, 4, profile), makeItem(4, 5, 5, note),
		}, []int{0, 1, 2, 4}},
		{"a gift wrap waits for deletions, which may be its recipient's", wide, []*item{makeItem(0, 1, 1, deletion), makeItem(1, 2, 2, wrap), makeItem(2, 3, 3, note)}, []int{0, 2}},
		{"and a deletion for gift wraps", wide, []*item{makeItem(0, 1, 1, wrap), makeItem(1, 2, 2, wrap), makeItem(2, 3, 3, deletion)}, []int{0, 1}},
		{"what an event is about comes before it", wide, []*item{makeItem(0, 1, 1, same), makeItem(1, 2, 2, to(same.ID)), makeItem(2, 2, 2, note), makeItem(3, 3, 3, to(nostr.ID{8}))}, []int{0, 3}},
		{"the unknown channel of a target is a topic", Limits{Events: 9, Bytes: 1 << 20, Topics: 3}, []*item{
			makeItem(0, 1, 1, to(nostr.ID{7})), makeItem(1, 2, 2, to(nostr.ID{7})), makeItem(2, 3, 3, to(nostr.ID{8})), makeItem(3, 4, 4, to(nostr.ID{9})),
		}, []int{0, 1, 2}},
		{"one of each id", wide, []*item{makeItem(0, 1, 1, same), makeItem(1, 2, 1, same), makeItem(2, 3, 3, note)}, []int{0, 2}},
		{"one of each address, and what its client sent later waits with it", wide, []*item{
			makeItem(0, 1, 1, profile), makeItem(1, 1, 1, profile), makeItem(2, 1, 1, note), makeItem(3, 2, 2, profile),
		}, []int{0, 3}},
		{"a deletion ends its client's part", wide, []*item{makeItem(0, 1, 1, deletion), makeItem(1, 1, 1, note), makeItem(2, 2, 2, note)}, []int{0, 2}},
		{"a deletion waits for its author's events", wide, []*item{makeItem(0, 1, 1, note), makeItem(1, 1, 1, deletion), makeItem(2, 2, 2, note)}, []int{0, 2}},
		{"also those of another client", wide, []*item{makeItem(0, 1, 7, note), makeItem(1, 2, 7, deletion), makeItem(2, 2, 2, note)}, []int{0}},
		{"and its author's events wait for it", wide, []*item{makeItem(0, 1, 7, deletion), makeItem(1, 2, 7, note), makeItem(2, 3, 3, note)}, []int{0, 2}},
		{"a request to vanish is alone with its community", wide, []*item{makeItem(0, 1, 1, vanish), makeItem(1, 2, 2, note), elsewhere(makeItem(2, 3, 3, note))}, []int{0, 2}},
		{"and waits for it", wide, []*item{elsewhere(makeItem(0, 1, 1, vanish)), makeItem(1, 2, 2, note), makeItem(2, 1, 1, vanish), makeItem(3, 3, 3, note)}, []int{0, 1, 3}},
		{"a command is alone with its community", ample, []*item{makeItem(0, 1, 1, in(9030, "")), makeItem(1, 2, 2, note), elsewhere(makeItem(2, 1, 1, note)), elsewhere(makeItem(3, 3, 3, in(9030, "")))}, []int{0, 2}},
		{"and waits for it", ample, []*item{makeItem(0, 2, 2, in(9, "a")), makeItem(1, 1, 1, in(9030, "")), makeItem(2, 1, 1, note), makeItem(3, 3, 3, note)}, []int{0, 3}},
		{"a command in a channel is alone with the channel", ample, []*item{
			makeItem(0, 1, 1, in(9000, "a")), makeItem(1, 1, 1, in(9, "b")), makeItem(2, 2, 2, in(9, "a")), makeItem(3, 3, 3, in(9, "b")), makeItem(4, 4, 4, in(9000, "b")), makeItem(5, 5, 5, in(9000, "c")),
		}, []int{0, 3, 5}},
		{"one about conversations is alone with those of its community", ample, []*item{
			makeItem(0, 1, 1, in(9, "a")), makeItem(1, 2, 2, nostr.Event{Kind: 41010}), makeItem(2, 3, 3, nostr.Event{Kind: 41010}), makeItem(3, 2, 2, note),
			makeItem(4, 4, 4, in(9000, "a")), makeItem(5, 5, 5, in(9000, "b")), elsewhere(makeItem(6, 6, 6, nostr.Event{Kind: 41010})), makeItem(7, 7, 7, note),
		}, []int{0, 1, 5, 6, 7}},
		{"what follows from a command needs room", wide, []*item{makeItem(0, 1, 1, in(9000, "a")), makeItem(1, 2, 2, in(9000, "b")), makeItem(2, 3, 3, in(9000, "c")), makeItem(3, 4, 4, in(9000, "d"))}, []int{0, 1}},
		{"and what has no room holds up its client and its channel, not others", wide, []*item{
			makeItem(0, 1, 1, in(9000, "a")), makeItem(1, 2, 2, in(9000, "b")), makeItem(2, 3, 3, in(9000, "c")), makeItem(3, 3, 3, note), makeItem(4, 4, 4, in(9, "c")), makeItem(5, 4, 4, note), makeItem(6, 5, 5, in(9, "d")),
		}, []int{0, 1, 6}},
		{"nor another community", Limits{Events: 9, Bytes: 1000, Topics: 9}, []*item{
			makeItem(0, 1, 1, note), elsewhere(makeItem(1, 2, 2, in(9030, ""))), elsewhere(makeItem(2, 3, 3, note)), makeItem(3, 4, 4, note),
		}, []int{0, 3}},
		{"a creation ends its client's part, and others' use of the channel", wide, []*item{
			makeItem(0, 1, 1, in(9007, "a")), makeItem(1, 1, 1, in(9, "b")), makeItem(2, 2, 2, in(9, "a")), makeItem(3, 3, 3, in(9007, "a")), makeItem(4, 4, 4, in(9, "b")),
		}, []int{0, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var waiting []Item
			var rest []int
			for _, it := range c.waiting {
				waiting = append(waiting, it)
				if !slices.Contains(c.batch, it.n) {
					rest = append(rest, it.n)
				}
			}
			batch, left := pick(waiting, c.limits)
			require.Equal(t, c.batch, numbers(batch))
			require.Equal(t, append([]int{}, rest...), numbers(left))
		})
	}
}

// TestPickProperties forms batches from random lines until nothing waits, and checks what must hold of all
// of them.
func TestPickProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{Events: rapid.IntRange(1, 12).Draw(t, "events"), Bytes: rapid.OneOf(rapid.IntRange(1, 4000), rapid.Just(1<<20)).Draw(t, "bytes"), Topics: rapid.IntRange(2, 5).Draw(t, "topics")}
		kinds := []nostr.Kind{0, 1, 5, 7, 9, 62, 9000, 9007, 9030, 30023, 41010}
		var waiting []Item
		for n := range rapid.IntRange(1, 60).Draw(t, "n") {
			ev := nostr.Event{Kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
			switch ev.Kind {
			case 9, 9000, 9007:
				ev.Tags = nostr.Tags{{"h", rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "h")}}
			case 7:
				if n > 0 {
					ev.Tags = nostr.Tags{{"e", waiting[rapid.IntRange(0, n-1).Draw(t, "target")].Candidate().Event.ID.String()}}
				}
			case 30023:
				ev.Tags = nostr.Tags{{"d", rapid.SampledFrom([]string{"", "x"}).Draw(t, "d")}}
			default:
			}
			if rapid.IntRange(0, 9).Draw(t, "repeat") == 0 && n > 0 {
				ev.ID = waiting[0].Candidate().Event.ID
			}
			waiting = append(waiting, makeItem(n, byte(rapid.IntRange(1, 4).Draw(t, "client")), byte(rapid.IntRange(1, 4).Draw(t, "author")), ev))
		}
		total, last := len(waiting), map[policy.Client]int{}
		for round := 0; len(waiting) > 0; round++ {
			batch, rest := pick(waiting, limits)
			require.NotEmpty(t, batch)
			require.LessOrEqual(t, len(batch), limits.Events)
			require.Equal(t, len(waiting), len(batch)+len(rest))
			require.True(t, slices.IsSorted(numbers(rest)))
			for i, it := range batch {
				c := it.Candidate()
				n := it.(*item).n
				if before, ok := last[c.Client()]; ok {
					require.Less(t, before, n, "a client's events in the order of sending")
				}
				last[c.Client()] = n
				for _, other := range batch[:i] {
					o := other.Candidate()
					require.NotEqual(t, o.Event.ID, c.Event.ID)
					require.NotContains(t, c.Targets(), o.Event.ID)
					require.False(t, (changesChannel(o) && c.FollowsTarget()) || (changesChannel(c) && o.FollowsTarget()))
					require.False(t, o.Event.PubKey == c.Event.PubKey && (o.Deletion != nil || c.Deletion != nil))
					require.False(t, o.Whole() || c.Whole())
					requireApart(t, o, c)
					requireApart(t, c, o)
					require.False(t, o.Client() == c.Client() && (o.Deletion != nil || o.Command != nil))
					if at, ok := addressOf(c); ok {
						oat, ook := addressOf(o)
						require.False(t, ook && at == oat)
					}
				}
			}
			total -= len(batch)
			waiting = rest
		}
		require.Zero(t, total)
	})
}

// requireApart checks that b is not about what a holds.
func requireApart(t *rapid.T, a, b *policy.Candidate) {
	if held, ok := a.Holds(); ok {
		require.NotContains(t, topics(b), held)
	}
}

// Behind as many commands as a connection may have in flight, of many clients, an event of another community is in the
// first transaction; each of the commands has its turn, in the order of sending.
func TestCommandsHoldUpOnlyTheirCommunity(t *testing.T) {
	limits := Limits{Events: 1024, Bytes: 917504, Erasures: 10000, Topics: 1000}
	const n = 2048
	for _, kind := range []nostr.Kind{nostr.KindPutUser, nostr.KindRelayAddMember} {
		for _, clients := range []int{16, 256} {
			var waiting []Item
			for i := range n {
				ev := nostr.Event{Kind: kind}
				if kind == nostr.KindPutUser {
					ev.Tags = nostr.Tags{{"h", strconv.Itoa(i)}}
				}
				waiting = append(waiting, makeItem(i, byte(i%clients), byte(i%clients), ev))
			}
			waiting = append(waiting, elsewhere(makeItem(n, 1, 1, nostr.Event{Kind: 1})))
			batch, rest := pick(waiting, limits)
			require.Contains(t, numbers(batch), n)
			transactions := 1
			for ; len(rest) > 0; transactions++ {
				first := rest[0].(*item).n
				batch, rest = pick(rest, limits)
				require.Contains(t, numbers(batch), first, "nothing is passed over for ever")
			}
			require.LessOrEqual(t, transactions, n)
		}
	}
}

func TestQueueGathersWhileItCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches [][]int
		q := NewQueue(100, always(wide), func(_ context.Context, batch []Item) {
			batches = append(batches, numbers(batch))
			pause := time.NewTimer(time.Second) // a slow database
			<-pause.C
			answer(batch, policy.Verdict{})
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- q.Run(ctx, func() {}) }()
		note := nostr.Event{Kind: 1}
		var items []*item
		submit := func(n int) {
			it := makeItem(n, 1, 1, note)
			items = append(items, it)
			require.NoError(t, q.Submit(t.Context(), it))
			synctest.Wait()
		}
		submit(0)
		submit(1)
		submit(2)
		time.AfterFunc(1500*time.Millisecond, func() { submit(3) })
		<-time.After(10 * time.Second)
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, [][]int{{0}, {1, 2}, {3}}, batches)
		for _, it := range items {
			require.Equal(t, []policy.Verdict{{}}, it.answers)
		}
	})
}

func TestQueueIsBoundedAndAnswersEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(2, always(Limits{Events: 1, Bytes: 1 << 20, Topics: 9}), func(ctx context.Context, batch []Item) {
			pause := time.NewTimer(time.Hour)
			<-pause.C
			require.NoError(t, ctx.Err(), "a batch on its way is not aborted")
			answer(batch, policy.Verdict{})
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- q.Run(ctx, func() {}) }()
		items := []*item{}
		for n := range 10 {
			it := makeItem(n, 1, 1, nostr.Event{Kind: 1})
			within, stop := context.WithTimeout(t.Context(), time.Minute)
			err := q.Submit(within, it)
			stop()
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				break
			}
			items = append(items, it)
			synctest.Wait()
		}
		require.Len(t, items, 3, "one is being committed, two wait")
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, []policy.Verdict{{}}, items[0].answers)
		for _, it := range items[1:] {
			require.Equal(t, []policy.Verdict{policy.Draining}, it.answers)
		}
	})
}

// refusing is a Store whose transactions fail if they hold certain events.
type refusing struct {
	err     func(n int) error
	batches [][]int
	items   map[*policy.Candidate]*item
}

func (r *refusing) Commit(_ context.Context, batch []*policy.Candidate) (store.Result, error) {
	var list []int
	for _, c := range batch {
		list = append(list, r.items[c].n)
	}
	r.batches = append(r.batches, list)
	for _, n := range list {
		if err := r.err(n); err != nil {
			return store.Result{}, err
		}
	}
	return store.Result{Verdicts: make([]policy.Verdict, len(batch)), Row: &store.Row{ID: int64(len(r.batches))}}, nil
}

func flushWith(t *testing.T, n int, err func(n int) error) (items []*item, s *refusing, published int) {
	t.Helper()
	s = &refusing{err: err, items: map[*policy.Candidate]*item{}}
	c := &Committer{
		Store: s, Publish: func(context.Context, *store.Row) { published++ }, Timeout: time.Minute,
		Tracer: tracenoop.NewTracerProvider().Tracer(""), Log: slog.New(slog.DiscardHandler),
	}
	var batch []Item
	for i := range n {
		it := makeItem(i, 1, 1, nostr.Event{Kind: 1})
		s.items[it.candidate] = it
		items, batch = append(items, it), append(batch, it)
	}
	c.Flush(t.Context(), batch)
	for _, it := range items {
		require.Len(t, it.answers, 1)
	}
	return items, s, published
}

func TestBadDataIsIsolated(t *testing.T) {
	bad := []int{3, 40}
	items, s, published := flushWith(t, 64, func(n int) error {
		if slices.Contains(bad, n) {
			return &pgconn.PgError{Code: "22021", Message: "invalid byte sequence"}
		}
		return nil
	})
	for _, it := range items {
		if slices.Contains(bad, it.n) {
			require.Equal(t, fault.InternalFault, it.answers[0].Reason)
			require.NotContains(t, it.answers[0].Message, "byte sequence", "the driver's text stays here")
		} else {
			require.Equal(t, policy.Verdict{}, it.answers[0])
		}
	}
	require.Less(t, len(s.batches), 30, "by halves, not one by one")
	require.Equal(t, 10, published, "five good parts of each half")
}

func TestOutageIsNotBisected(t *testing.T) {
	for name, err := range map[string]error{
		"deadlock":         &pgconn.PgError{Code: "40P01"},
		"lock timeout":     &pgconn.PgError{Code: "55P03"},
		"shutdown":         &pgconn.PgError{Code: "57P01"},
		"too many clients": &pgconn.PgError{Code: "53300"},
		"deadline":         context.DeadlineExceeded,
		"connection":       &pgconn.ConnectError{},
	} {
		t.Run(name, func(t *testing.T) {
			items, s, published := flushWith(t, 8, func(int) error { return err })
			require.Len(t, s.batches, 1)
			require.Zero(t, published)
			for _, it := range items {
				require.Equal(t, policy.Overloaded, it.answers[0])
			}
		})
	}
}

// What fails for a reason of its own does not take its neighbours along, be it a fault or a refusal.
func TestFailuresAreIsolated(t *testing.T) {
	tooMuch := &store.RefusedError{Verdict: policy.TooMuchFollows}
	items, _, published := flushWith(t, 8, func(n int) error {
		switch n {
		case 2:
			return errors.New("surprise")
		case 5:
			return fmt.Errorf("commit: %w", tooMuch)
		}
		return nil
	})
	require.Equal(t, 4, published)
	for _, it := range items {
		switch it.n {
		case 2:
			require.Equal(t, fault.InternalFault, it.answers[0].Reason)
		case 5:
			require.Equal(t, policy.TooMuchFollows, it.answers[0])
		default:
			require.Equal(t, policy.Verdict{}, it.answers[0])
		}
	}
}

func BenchmarkPick(b *testing.B) {
	var waiting []Item
	for n := range 1024 {
		waiting = append(waiting, makeItem(n, byte(n), byte(n), nostr.Event{Kind: 9, Tags: nostr.Tags{{"h", strconv.Itoa(n % 50)}}}))
	}
	for b.Loop() {
		pick(waiting, Limits{Events: 1024, Bytes: 1 << 20, Topics: 256})
	}
}
