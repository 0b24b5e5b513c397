package live

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNeeds(t *testing.T) {
	t.Parallel()
	s := Spread{Subscriptions: 100, Deliveries: 1000}
	for _, c := range []struct{ attachments, rate, want int }{
		{0, 0, 1}, {100, 1000, 1}, {101, 0, 2}, {1, 1001, 2}, {250, 5000, 5}, {900, 5000, 9},
	} {
		require.Equal(t, c.want, s.needs(c.attachments, c.rate), "%+v", c)
	}
	require.Equal(t, 1, Spread{}.needs(1_000_000, 1_000_000), "no limits")
}

// A topic is spread at once by what it needs, over as many nodes as there are, and is taken together again only when it has
// been calm for long.
func TestATopicIsSpreadAtOnceAndTakenTogetherSlowly(t *testing.T) {
	t.Parallel()
	s := Spread{Deliveries: 1000}
	x := &topic{width: 1, attachments: 10}
	require.False(t, x.measure(s, 900, 8))
	require.True(t, x.measure(s, 3500, 8))
	require.Equal(t, 4, x.width)
	require.True(t, x.measure(s, 20_000, 8))
	require.Equal(t, 8, x.width, "no more than there are")
	for range 10 * calmMeasures {
		require.False(t, x.measure(s, 4000, 8), "twice as much would need all of them")
	}
	for range calmMeasures - 1 {
		require.False(t, x.measure(s, 1000, 8))
	}
	require.False(t, x.measure(s, 7000, 8), "it was not calm for long enough")
	for range calmMeasures - 1 {
		require.False(t, x.measure(s, 400, 8))
	}
	require.True(t, x.measure(s, 400, 8))
	require.Equal(t, 1, x.width)
}

// Attachments of a spread topic go to the first nodes of the rank in equal parts, each always to the same.
func TestSpreadAttachmentsGoByTheRank(t *testing.T) {
	t.Parallel()
	lv := New(Config{Partitions: 1}, nil, slog.New(slog.DiscardHandler), nil)
	for n := range 5 {
		name := fmt.Sprintf("node-%d", n)
		lv.book.links[name] = &link{name: name}
	}
	lv.rename()
	rank := lv.rank(0)
	count := make(map[string]int)
	var first *Attachment
	for range 300 {
		a := &Attachment{spec: Spec{Community: 1, Channel: "hive"}}
		lv.join(a)
		a.topic.width = 3
		l := lv.best(a, nil)
		require.Same(t, l, lv.best(a, nil))
		require.NotSame(t, l, lv.best(a, l))
		count[l.name]++
		first = a
	}
	require.Equal(t, map[string]int{rank[0]: 100, rank[1]: 100, rank[2]: 100}, count)
	first.topic.width = 9
	require.NotNil(t, lv.best(first, nil), "more than there are")
	for range 300 {
		lv.part(first)
	}
	require.Empty(t, lv.book.topics)
}
