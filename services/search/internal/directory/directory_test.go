package directory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
	"github.com/apiary-relay/apiary/services/search/internal/access"
	"github.com/apiary-relay/apiary/services/search/internal/store"
)

// replica is a store that has replayed up to a version that rises with time.
type replica struct {
	begun   time.Time
	primary bool
	err     error
	asked   []string // the h values
}

// version is 1 first, and one further each 100 ms.
func (r *replica) version() uint64 { return 1 + uint64(time.Since(r.begun)/(100*time.Millisecond)) }

// CommunityByHost finds community 1, which has lost its host at version 3 and was archived at version 4, as the host says.
func (r *replica) CommunityByHost(_ context.Context, hosts []string) (store.Community, bool, error) {
	v := r.version()
	c := store.Community{ID: 1, Version: v, Standby: !r.primary}
	switch hosts[0] {
	case "lost.example":
		return c, v < 3, r.err
	case "archived.example":
		c.Archived = v >= 4
	}
	return c, true, r.err
}

// TopicAccess answers from its version of community and channel.
func (r *replica) TopicAccess(_ context.Context, _ tenant.ID, h string, _ []nostr.PubKey) (access.Topic, error) {
	r.asked = append(r.asked, h)
	v := r.version()
	return access.Topic{
		Exists: true, Open: true, Standby: !r.primary, CommunityVersion: v, Time: time.Now().UnixMicro(), Channel: &access.Channel{Open: true, Version: v},
	}, r.err
}

func TestAccessWaitsForTheReplica(t *testing.T) {
	for _, tt := range []struct {
		name               string
		primary            bool
		community, channel uint64
		time               time.Duration
		waits              time.Duration
		reason             fault.Reason
	}{
		{"new enough", false, 1, 1, 0, 0, fault.Accepted},
		{"behind in the community", false, 3, 1, 0, 200 * time.Millisecond, fault.Accepted},
		{"behind in the channel", false, 1, 4, 0, 300 * time.Millisecond, fault.Accepted},
		{"too far behind", false, 1, 100, 0, time.Second, fault.Overloaded},
		{"a primary is never behind", true, 100, 100, 0, 0, fault.Accepted},
		{"a clock that is behind", false, 1, 1, 150 * time.Millisecond, 150 * time.Millisecond, fault.Accepted},
		{"a primary's clock that is behind", true, 1, 1, 150 * time.Millisecond, 150 * time.Millisecond, fault.Accepted},
		{"a clock that is far behind", true, 1, 1, time.Minute, time.Second, fault.Overloaded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				d := New(&replica{begun: begun, primary: tt.primary}, time.Second)
				topic, err := d.Access(t.Context(), 1, "lobby", nil, access.Least{
					Community: tt.community, Channel: tt.channel, Time: begun.Add(tt.time).UnixMicro(),
				})
				require.Equal(t, tt.reason, fault.ReasonOf(err))
				require.GreaterOrEqual(t, time.Since(begun), tt.waits)
				require.LessOrEqual(t, time.Since(begun), tt.waits+lastLook)
				if err == nil && !tt.primary {
					require.GreaterOrEqual(t, topic.CommunityVersion, tt.community)
					require.GreaterOrEqual(t, topic.Channel.Version, tt.channel)
				}
			})
		})
	}
}

// TestResolveWaitsForTheReplica for as long as the answer would name a community from before what is known of it.
func TestResolveWaitsForTheReplica(t *testing.T) {
	for _, tt := range []struct {
		name, host string
		primary    bool
		least      Least
		waits      time.Duration
		reason     fault.Reason
	}{
		{"anything will do", "lost.example", false, Least{}, 0, fault.Accepted},
		{"new enough", "lost.example", false, Least{1, 1}, 0, fault.Accepted},
		{"another community is known", "lost.example", false, Least{2, 100}, 0, fault.Accepted},
		{"a host that is taken away", "lost.example", false, Least{1, 3}, 200 * time.Millisecond, fault.NotFound},
		{"an archived community", "archived.example", false, Least{1, 4}, 300 * time.Millisecond, fault.NotFound},
		{"a host that stays", "kept.example", false, Least{1, 4}, 300 * time.Millisecond, fault.Accepted},
		{"too far behind", "kept.example", false, Least{1, 100}, time.Second, fault.Overloaded},
		{"a primary is never behind", "kept.example", true, Least{1, 100}, 0, fault.Accepted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				c, err := New(&replica{begun: begun, primary: tt.primary}, time.Second).Resolve(t.Context(), tt.host, tt.least)
				require.Equal(t, tt.reason, fault.ReasonOf(err))
				require.GreaterOrEqual(t, time.Since(begun), tt.waits)
				require.LessOrEqual(t, time.Since(begun), tt.waits+lastLook)
				if err == nil {
					require.EqualValues(t, 1, c.ID)
				}
			})
		})
	}
}

func TestAccessEndsWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := New(&replica{begun: time.Now()}, time.Second).Access(ctx, 1, "", nil, access.Least{Community: 100, Time: time.Now().UnixMicro()})
		require.Equal(t, fault.Timeout, fault.ReasonOf(err))
	})
}

func TestAccessOfWhatCannotBeAChannel(t *testing.T) {
	for _, h := range []string{"", "a b", "no\x00where", "ä"} {
		r := &replica{begun: time.Now()}
		_, err := New(r, time.Second).Access(t.Context(), 1, h, nil, access.Least{Community: 1, Channel: 100}) // no such channel has a version
		require.NoError(t, err)
		require.Equal(t, []string{""}, r.asked, "text that Postgres may not take stays here")
	}
}

func TestErrorsOfTheStorePass(t *testing.T) {
	broken := errors.New("broken")
	d := New(&replica{err: broken}, time.Second)
	_, err := d.Access(t.Context(), 1, "", nil, access.Least{})
	require.ErrorIs(t, err, broken)
	_, err = d.Resolve(t.Context(), "relay.example", Least{})
	require.ErrorIs(t, err, broken)
}
