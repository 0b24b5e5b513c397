package session

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/limit"
	"github.com/apiary-relay/apiary/pkg/nostr"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// The binding is what clients of this family compute: the first one is a vector that they test themselves with.
func TestBindingOfAThreadWindow(t *testing.T) {
	id, key := nostr.ID{}, nostr.PubKey{}
	for i := range id {
		id[i], key[i] = 0xab, 0xab
	}
	w := ThreadWindow{Filter: nostr.Filter{Kinds: []nostr.Kind{9}}, Root: id, Limit: 50, Depth: 100}
	const channel = "00000000-0000-0000-0000-000000000000"
	first := w.binding("relay.example", key, channel)
	require.Equal(t, "tw:1:5252322dfd797ddb1d5f1150acd4cf914b9fc09e39bcf3048d25aed514b3546d", first)

	seen := map[string]bool{first: true}
	differs := func(host string, key nostr.PubKey, channel string, change func(w *ThreadWindow)) {
		t.Helper()
		other := w
		change(&other)
		got := other.binding(host, key, channel)
		require.True(t, strings.HasPrefix(got, "tw:1:"))
		require.False(t, seen[got])
		seen[got] = true
	}
	nothing, until := func(*ThreadWindow) {}, int64(7)
	differs("other.example", key, channel, nothing)
	differs("relay.example", nostr.PubKey{}, channel, nothing)
	differs("relay.example", key, "lobby", nothing)
	differs("relay.example", key, channel, func(w *ThreadWindow) { w.Root = nostr.ID{} })
	differs("relay.example", key, channel, func(w *ThreadWindow) { w.Limit = 49 })
	differs("relay.example", key, channel, func(w *ThreadWindow) { w.Depth = 1 })
	differs("relay.example", key, channel, func(w *ThreadWindow) { w.Aux = true })
	differs("relay.example", key, channel, func(w *ThreadWindow) { w.Filter.Kinds = nil })
	differs("relay.example", key, channel, func(w *ThreadWindow) { w.Filter.Until, w.After = &until, id[:] })

	w.Filter.Kinds = []nostr.Kind{45003, 9, 45003}
	mixed := w.binding("relay.example", key, channel)
	w.Filter.Kinds = []nostr.Kind{9, 45003}
	require.Equal(t, w.binding("relay.example", key, channel), mixed)
}

// asked is a search that must not be asked.
type asked struct {
	Search
	t *testing.T
}

func (s asked) QueryThread(context.Context, *searchv1.QueryThreadRequest, ...grpc.CallOption) (*searchv1.QueryThreadResponse, error) {
	require.FailNow(s.t, "asked out of turn")
	return nil, nil
}

func (s asked) DescribeThreads(context.Context, *searchv1.DescribeThreadsRequest, ...grpc.CallOption) (*searchv1.DescribeThreadsResponse, error) {
	require.FailNow(s.t, "asked out of turn")
	return nil, nil
}

// Threads are read in turn with stored queries, of which the process has so many at a time.
func TestThreadsWaitForTheirTurn(t *testing.T) {
	srv := &Server{
		cfg: Config{CallTimeout: time.Minute}, queries: limit.NewFair[askerKey, netip.Prefix](limit.FairConfig{Places: 1, Greedy: 1, Share: time.Second, Burst: time.Second, Keys: 8}), Deps: Deps{Search: asked{t: t}},
	}
	release, err := srv.queries.Acquire(t.Context(), turn{})
	require.NoError(t, err)
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	page := srv.reader(1, &commonv1.Principal{}, func([]byte) error { return nil })
	_, _, err = page.replies(ctx, &searchv1.QueryThreadRequest{})
	require.Equal(t, fault.Timeout, fault.ReasonOf(err))
	_, err = page.summaries(ctx, []place{{}})
	require.Equal(t, fault.Timeout, fault.ReasonOf(err))
}
