package edge_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/edge"
	"github.com/apiary-relay/apiary/services/gateway/internal/told"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type resolver struct {
	edge.Resolver

	calls atomic.Int32
	delay time.Duration
	err   error
	// answer is given instead of the usual one.
	answer func(*searchv1.ResolveCommunityRequest) (*searchv1.ResolveCommunityResponse, error)
}

func (r *resolver) ResolveCommunity(
	ctx context.Context, in *searchv1.ResolveCommunityRequest, _ ...grpc.CallOption,
) (*searchv1.ResolveCommunityResponse, error) {
	r.calls.Add(1)
	if r.delay > 0 {
		timer := time.NewTimer(r.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	if r.answer != nil {
		return r.answer(in)
	}
	return &searchv1.ResolveCommunityResponse{Community: 1, Name: in.GetHost(), Hosts: []string{"canonical.example"}}, nil
}

func directory(r *resolver, hosts int) *edge.Directory { return hearing(r, hosts, told.NewLog()) }

// hearing returns a directory that knows what was told.
func hearing(r *resolver, hosts int, heard *told.Log) *edge.Directory {
	return edge.NewDirectory(edge.DirectoryConfig{TTL: 5 * time.Second, Hosts: hosts, CallTimeout: 2 * time.Second}, r, heard)
}

func TestAnswersExpire(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want error
	}{
		{"a community", nil, nil},
		{"none", fault.New(fault.NotFound, ""), edge.ErrNoCommunity},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &resolver{err: tt.err}
				d := directory(r, 10)
				for range 3 {
					_, err := d.Resolve(t.Context(), "a.example")
					require.ErrorIs(t, err, tt.want)
				}
				require.Equal(t, int32(1), r.calls.Load())
				timer := time.NewTimer(5 * time.Second)
				<-timer.C
				_, err := d.Resolve(t.Context(), "a.example")
				require.ErrorIs(t, err, tt.want)
				require.Equal(t, int32(2), r.calls.Load())
			})
		})
	}
}

// TestWhatIsBehindIsNotBelieved has replicas of which some still see a host with a community that has lost it, or that was
// archived, which the gateway has been told.
func TestWhatIsBehindIsNotBelieved(t *testing.T) {
	const host, lost, other = "a.example", 1, 2
	at := func(community int64, version uint64) *searchv1.ResolveCommunityResponse {
		return &searchv1.ResolveCommunityResponse{Community: community, AclVersion: version, Hosts: []string{host}}
	}
	none := fault.New(fault.NotFound, "")
	for name, tt := range map[string]struct {
		known  bool // whether the gateway knew whose host it was
		answer func(*searchv1.ResolveCommunityRequest) (*searchv1.ResolveCommunityResponse, error)
		want   int64 // 0 for none
		asked  int32
	}{
		"it was taken from one that is not known": {
			answer: func(r *searchv1.ResolveCommunityRequest) (*searchv1.ResolveCommunityResponse, error) {
				if r.GetCommunity() == lost && r.GetMinAclVersion() >= 7 {
					return nil, none
				}
				return at(lost, 6), nil
			}, asked: 2,
		},
		"it was taken from one that is known": {
			known: true,
			answer: func(r *searchv1.ResolveCommunityRequest) (*searchv1.ResolveCommunityResponse, error) {
				if r.GetCommunity() == lost && r.GetMinAclVersion() >= 7 {
					return nil, none
				}
				return at(lost, 6), nil
			}, asked: 1,
		},
		"it is still its own": {
			known: true,
			answer: func(*searchv1.ResolveCommunityRequest) (*searchv1.ResolveCommunityResponse, error) {
				return at(lost, 7), nil
			},
			want: lost, asked: 1,
		},
		"the second replica sees it with another one that has lost it, too": {
			known: true,
			answer: func(r *searchv1.ResolveCommunityRequest) (*searchv1.ResolveCommunityResponse, error) {
				if r.GetCommunity() == other && r.GetMinAclVersion() >= 9 {
					return at(lost, 8), nil
				}
				return at(other, 8), nil
			}, want: lost, asked: 2,
		},
		"the database has lost what was told": {
			answer: func(*searchv1.ResolveCommunityRequest) (*searchv1.ResolveCommunityResponse, error) {
				return at(lost, 6), nil
			},
			want: lost, asked: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, heard := &resolver{}, told.NewLog()
			d := hearing(r, 10, heard)
			if tt.known {
				_, err := d.Resolve(t.Context(), host)
				require.NoError(t, err)
			}
			heard.Note(lost, 7)
			heard.Note(other, 9)
			d.Forget(lost)
			r.answer = tt.answer
			r.calls.Store(0)
			c, err := d.Resolve(t.Context(), host)
			require.Equal(t, tt.asked, r.calls.Load())
			if tt.want == 0 {
				require.ErrorIs(t, err, edge.ErrNoCommunity)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, c.ID)
		})
	}
}

func TestFailuresAreNotRemembered(t *testing.T) {
	r := &resolver{err: fault.New(fault.Overloaded, "")}
	d := directory(r, 10)
	_, err := d.Resolve(t.Context(), "a.example")
	require.Equal(t, fault.Overloaded, fault.ReasonOf(err))
	r.err = nil
	c, err := d.Resolve(t.Context(), "a.example")
	require.NoError(t, err)
	require.Equal(t, []string{"canonical.example", "a.example"}, c.Hosts, "the host itself may stand in an AUTH")
}

func TestConcurrentQuestionsAreAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &resolver{delay: time.Second}
		d := directory(r, 10)
		first, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := d.Resolve(first, "a.example")
			require.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		for range 20 {
			wg.Go(func() {
				_, err := d.Resolve(t.Context(), "a.example")
				require.NoError(t, err, "the first one's leaving is not the others' failure")
			})
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		require.Equal(t, int32(1), r.calls.Load())
	})
}

func TestTheDirectoryIsBounded(t *testing.T) {
	r := &resolver{err: fault.New(fault.NotFound, "")}
	d := directory(r, 100)
	for i := range 1000 {
		_, err := d.Resolve(t.Context(), fmt.Sprintf("%d.example", i))
		require.ErrorIs(t, err, edge.ErrNoCommunity)
		require.LessOrEqual(t, d.Len(), 100)
	}
	require.Equal(t, 100, d.Len())
	r.err = nil
	for i := range 1000 {
		_, err := d.Resolve(t.Context(), fmt.Sprintf("%d.example", i))
		require.NoError(t, err)
		require.LessOrEqual(t, d.Len(), 100)
	}
}

// Hosts that somebody makes up wait for each other; those that have a community wait for none of them, also
// when it is time to ask again.
func TestInventedHostsDelayOnlyEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &resolver{}
		d := directory(r, 1000)
		for i := range 20 {
			_, err := d.Resolve(t.Context(), fmt.Sprintf("known-%d.example", i))
			require.NoError(t, err)
		}
		<-time.After(6 * time.Second)
		asked := r.calls.Load()
		r.delay = time.Second
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() { _, _ = d.Resolve(t.Context(), fmt.Sprintf("invented-%d.example", i)) })
		}
		synctest.Wait()
		require.Equal(t, asked+8, r.calls.Load())
		for i := range 20 {
			wg.Go(func() {
				began := time.Now()
				_, err := d.Resolve(t.Context(), fmt.Sprintf("known-%d.example", i))
				require.NoError(t, err)
				require.Equal(t, time.Second, time.Since(began))
			})
		}
		synctest.Wait()
		require.Equal(t, asked+8+20, r.calls.Load())
		wg.Wait()
	})
}
