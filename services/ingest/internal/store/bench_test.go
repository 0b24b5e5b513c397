package store

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// BenchmarkCommit stores batches of channel messages of 500 bytes with two tags, over one connection at a
// time, and reports events per second.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{1, 8, 64, 256, 1024} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			f := newFixture(b)
			_, err := f.EnsurePartitions(b.Context(), time.Unix(nostrtest.Epoch, 0), 1)
			require.NoError(b, err)
			for i := range 10 {
				f.accept(f.candidate("owner", create(nostrtest.Channel("c"+strconv.Itoa(i)))...))
			}
			// Signed once; every round gets ids of its own, which nobody looks at here.
			template := make([]*policy.Candidate, size)
			for i := range template {
				template[i] = f.candidate("author "+strconv.Itoa(i%50), nostrtest.Kind(9), nostrtest.Channel("c"+strconv.Itoa(i%10)),
					nostrtest.Tag("p", strings.Repeat("a", 64)), nostrtest.Content(strings.Repeat("x", 120)+strconv.Itoa(i)))
			}
			round := 0
			for b.Loop() {
				batch := make([]*policy.Candidate, size)
				for i, c := range template {
					again, ev := *c, *c.Event
					for k := range 8 {
						ev.ID[k] ^= byte(uint64(round) >> (8 * k))
					}
					ev.CreatedAt += int64(round % 1000)
					again.Event = &ev
					batch[i] = &again
				}
				round++
				result, err := f.Commit(b.Context(), batch)
				require.NoError(b, err)
				require.True(b, result.Verdicts[0].Accepted(), result.Verdicts[0].Message)
			}
			b.ReportMetric(float64(round*size)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkCommitAbout is BenchmarkCommit of events that are about a message: replies, with the summaries of their
// threads, and reactions that follow it into its channel.
func BenchmarkCommitAbout(b *testing.B) {
	const size, channels = 256, 10
	f := newFixture(b).withKey()
	_, err := f.EnsurePartitions(b.Context(), time.Unix(nostrtest.Epoch, 0), 1)
	require.NoError(b, err)
	messages := make([]*policy.Candidate, channels)
	for i := range messages {
		f.channel("c" + strconv.Itoa(i))
		messages[i] = f.chat("owner", "c"+strconv.Itoa(i), "first")
	}
	f.accept(messages...)
	for name, template := range map[string]func(i int, target *policy.Candidate) *policy.Candidate{
		"replies": func(i int, target *policy.Candidate) *policy.Candidate {
			return f.chat("author "+strconv.Itoa(i%50), target.Channel, strings.Repeat("x", 120)+strconv.Itoa(i), reply(target))
		},
		"reactions": func(i int, target *policy.Candidate) *policy.Candidate {
			return f.reaction("author "+strconv.Itoa(i), "+", e(target))
		},
	} {
		round := 0 // over all runs
		b.Run(name, func(b *testing.B) {
			list := make([]*policy.Candidate, size)
			for i := range list {
				list[i] = template(i, messages[i%channels])
			}
			before := round
			for b.Loop() {
				batch := make([]*policy.Candidate, size)
				for i, c := range list {
					again, ev := *c, *c.Event
					for k := range 8 {
						ev.ID[k] ^= byte(uint64(round) >> (8 * k))
					}
					again.Event = &ev
					if c.Reaction != nil {
						again.Reaction = &policy.Reaction{Target: c.Reaction.Target, Emoji: strconv.Itoa(round)}
					}
					batch[i] = &again
				}
				round++
				result, err := f.Commit(b.Context(), batch)
				require.NoError(b, err)
				require.True(b, result.Verdicts[0].Accepted(), result.Verdicts[0].Message)
			}
			b.ReportMetric(float64((round-before)*size)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
