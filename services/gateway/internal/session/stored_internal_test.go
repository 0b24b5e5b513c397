package session

import (
	"context"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/limit"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/admit"
)

// A connection hurries once it has more in hand than may run at a time, and no longer than that.
func TestWhoAsksMoreThanMayRunHurries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const running = 3
		gate := admit.New(admit.Config{})
		s := &Session{
			srv: &Server{cfg: Config{ConnQueries: running}}, community: &Community{ID: 7},
			client: gate.Client(netip.MustParseAddr("2001:db8::1"), time.Now()), began: time.Now(),
		}
		s.jobs.init(running, 100)
		key := nostrtest.Key("alice").PubKey()
		p := &commonv1.Principal{Pubkeys: [][]byte{key[:]}}
		work, done := make(chan struct{}), make(chan struct{})
		for range running {
			s.jobs.add(t.Context(), func() { <-work })
			require.False(t, s.asker(p).Hurries)
		}
		s.jobs.add(t.Context(), func() { close(done) })
		require.True(t, s.asker(p).Hurries)
		require.Equal(t, limit.Asker[askerKey, netip.Prefix]{
			Key: askerKey{community: 7, pubkey: key}, Crowd: netip.MustParsePrefix("2001:db8::/64"), Hurries: true, Came: time.Now(),
		}, s.asker(p))
		close(work)
		<-done
		s.jobs.wait()
		require.False(t, s.asker(p).Hurries)
	})
}

// A connection's first queries leave a quarter of the places to others, and no more than that unless it is said how many.
func TestNewcomersAreLeftMostPlaces(t *testing.T) {
	for said, most := range map[int]int{0: 6, 8: 6, 2: 2} {
		t.Run(strconv.Itoa(said), func(t *testing.T) { checkNewcomers(t, said, most) })
	}
}

func checkNewcomers(t *testing.T, said, most int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const places = 8
		queries := limit.NewFair[askerKey, netip.Prefix](queryPlaces(places, said))
		var held []func()
		ask := func(came time.Time) error {
			ctx, cancel := context.WithTimeout(t.Context(), newGrace/4)
			defer cancel()
			release, err := queries.Acquire(ctx, turn{Key: askerKey{community: int64(len(held))}, Came: came})
			if err == nil {
				held = append(held, release)
			}
			return err
		}
		for range most {
			require.NoError(t, ask(time.Now()))
		}
		require.Error(t, ask(time.Now()))
		require.NoError(t, ask(time.Now().Add(-newGrace)))
		for range places - most - 1 {
			require.NoError(t, ask(time.Time{}))
		}
		require.Error(t, ask(time.Time{}))
		for _, release := range held {
			release()
		}
	})
}

// crowd asks for places for clients of one address: each as many queries at once, as often as may run of a connection.
type crowd struct {
	queries *limit.Fair[askerKey, netip.Prefix]
	network netip.Prefix
}

// ask runs a query of a client that takes so long, and returns how long that took with the wait.
func (c *crowd) ask(t *testing.T, client int, hurries bool, takes time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	release, err := c.queries.Acquire(t.Context(), turn{Key: askerKey{community: int64(client)}, Crowd: c.network, Hurries: hurries})
	if err != nil {
		if t.Context().Err() == nil { // else the test has ended already
			t.Error(err)
		}
		return 0
	}
	<-time.NewTimer(takes).C
	release()
	return time.Since(began)
}

// flood has clients ask that many queries each, running four at a time. It does not outlive the test, also if that fails before it waits.
func (c *crowd) flood(t *testing.T, clients, queries int, takes time.Duration) (wait func()) {
	t.Helper()
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	for client := range clients {
		left := make(chan struct{}, queries)
		for range queries {
			left <- struct{}{}
		}
		close(left)
		for range 4 {
			wg.Go(func() {
				for range left {
					c.ask(t, client, len(left) > 0, takes)
				}
			})
		}
	}
	return wg.Wait
}

// Two hundred people behind one address who all come back at the same time, and open a dozen subscriptions each, are
// served about as soon as Postgres can, and who comes then and asks one thing does not wait for them.
func TestAnOfficeIsNoFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{limit.NewFair[askerKey, netip.Prefix](fairConfig(16)), netip.MustParsePrefix("192.0.2.1/32")}
		began := time.Now()
		wait := c.flood(t, 200, 12, 3*time.Millisecond)
		synctest.Wait()
		require.Less(t, c.ask(t, 1000, false, 3*time.Millisecond), 200*time.Millisecond)
		wait()
		require.Less(t, time.Since(began), 10*time.Second)
		require.Equal(t, 3*time.Millisecond, c.ask(t, 1, false, 3*time.Millisecond))
	})
}

// A flood from one address has, once the address has used what it may use at once, a part of the places, which rest
// most of the time, whatever keys it comes with; its neighbours at the address and everybody else go first.
func TestAFloodOfNewKeysHasWhatOthersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{limit.NewFair[askerKey, netip.Prefix](fairConfig(16)), netip.MustParsePrefix("192.0.2.1/32")}
		other := &crowd{c.queries, netip.MustParsePrefix("192.0.2.2/32")}
		const clients, queries, takes = 32, 40, 10 * time.Millisecond
		began := time.Now()
		wait := c.flood(t, clients, queries, takes)
		<-time.NewTimer(time.Second).C // its first seconds of places are over
		for range 50 {
			require.Equal(t, takes, c.ask(t, 1000, false, takes))
			require.Equal(t, takes, other.ask(t, 1001, true, takes))
		}
		wait()
		served := (clients * queries * takes).Seconds() / time.Since(began).Seconds()
		require.Less(t, served, 1.0, "places' worth of work")
	})
}

// Who asks one thing after the other goes first however slow the answers are: that a busy machine takes longer for
// each makes nobody a flood.
func TestOneAtATimeIsNoFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{limit.NewFair[askerKey, netip.Prefix](fairConfig(16)), netip.MustParsePrefix("192.0.2.1/32")}
		const takes = 40 * time.Millisecond
		wait := c.flood(t, 8, 100, takes)
		<-time.NewTimer(2 * time.Second).C // its first seconds of places are over
		for range 200 {
			require.Equal(t, takes, c.ask(t, 1000, false, takes))
			<-time.NewTimer(takes / 4).C
		}
		wait()
	})
}
