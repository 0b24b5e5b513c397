package ingest_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

func TestSixtyFourWritersOfOneAddress(t *testing.T) {
	h := newHarness(t)
	replicas := []*replica{h.start("one"), h.start("two")}
	community := h.community(replicas[0], "one.example", open)
	now := time.Now().Unix()
	versions := make([]*nostr.Event, 64)
	for i := range versions {
		versions[i] = event(t, "alice", nostrtest.Kind(30023), nostrtest.CreatedAt(now+int64(i%8)), nostrtest.Tag("d", "x"),
			nostrtest.Tag("t", strconv.Itoa(i)), nostrtest.Content(strconv.Itoa(i)))
	}
	best := slices.MaxFunc(versions, func(a, b *nostr.Event) int {
		if a.CreatedAt != b.CreatedAt {
			return int(a.CreatedAt - b.CreatedAt)
		}
		return slices.Compare(b.ID[:], a.ID[:]) // the lowest id wins
	})
	var writers sync.WaitGroup
	streams := make([]*client, len(versions))
	for i := range versions {
		streams[i] = h.open(replicas[i%2])
	}
	verdicts := make([]*ingestv1.Verdict, len(versions))
	for i, c := range streams {
		writers.Go(func() {
			s := by(community, versions[i], "alice")
			s.Ref = 1
			if c.stream.Send(&ingestv1.PublishRequest{Submissions: []*ingestv1.Submission{s}}) != nil {
				return
			}
			if resp, err := c.stream.Recv(); err == nil {
				verdicts[i] = resp.GetVerdicts()[0]
			}
		})
	}
	writers.Wait()
	won := 0
	for i, v := range verdicts {
		require.NotNil(t, v)
		if v.GetReason() == accepted {
			won++
			continue
		}
		requireVerdict(t, duplicate, "a newer version is stored", v)
		require.NotSame(t, best, versions[i])
	}
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.events`))
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.events e JOIN ingest.addresses a USING (community_id, created_at, id) WHERE e.id = $1`, best.ID[:]))
	require.Equal(t, 2, h.count(`SELECT count(*) FROM ingest.event_tags`), "d and t of the winner")
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.event_ids`))
	require.Len(t, h.published(), won, "every version that was accepted was passed on")
}

// TestRemovalDuringALoad removes a member while both replicas are busy with its events.
func TestRemovalDuringALoad(t *testing.T) {
	h := newHarness(t)
	replicas := []*replica{h.start("one"), h.start("two")}
	community := h.community(replicas[0], "closed.example", closed)
	alice := nostrtest.PubKey("alice")
	put, err := replicas[0].directory.PutMember(t.Context(), &ingestv1.PutMemberRequest{Host: "closed.example", Pubkey: alice[:], Role: "member"})
	require.NoError(t, err)
	require.EqualValues(t, 2, put.GetAclVersion())

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers sync.WaitGroup
	started := make(chan struct{}, 2)
	wrong := make(chan string, 2)
	for i, r := range replicas {
		c := h.open(r)
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				s := by(community, event(t, "alice", nostrtest.Content(fmt.Sprint(i, " ", n))), "alice")
				s.Ref = uint64(n)
				if err := c.stream.Send(&ingestv1.PublishRequest{Submissions: []*ingestv1.Submission{s}}); err != nil {
					wrong <- err.Error()
					return
				}
				resp, err := c.stream.Recv()
				if err != nil {
					wrong <- err.Error()
					return
				}
				if n == 10 {
					started <- struct{}{}
				}
				if v := resp.GetVerdicts()[0]; v.GetReason() == restricted {
					return
				}
			}
		})
	}
	<-started
	<-started
	removed, err := replicas[1].directory.RemoveMember(t.Context(), &ingestv1.RemoveMemberRequest{Host: "closed.example", Pubkey: alice[:]})
	require.NoError(t, err)
	require.EqualValues(t, 3, removed.GetAclVersion())
	// From here on nothing of alice's is accepted, so both writers are refused and end.
	count := h.count(`SELECT count(*) FROM ingest.events`)
	writers.Wait()
	require.Empty(t, wrong)
	require.Equal(t, count, h.count(`SELECT count(*) FROM ingest.events`))
	for _, e := range h.events().await(t, count) {
		require.EqualValues(t, 2, e.GetHeader().GetCommunityAclVersion())
	}
}

func TestTraces(t *testing.T) {
	h := newHarness(t)
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.WithoutCancel(t.Context()))) })
	r := h.start("one", func(o *options) { o.tracer = provider.Tracer("ingest") })
	h.awaitStreams()
	community := h.community(r, "one.example", open)
	c := h.open(r)

	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	sampled := by(community, event(t, "alice", nostrtest.Content("sampled")), "alice")
	sampled.Traceparent = parent
	ephemeral := by(community, event(t, "alice", nostrtest.Kind(20001)), "alice")
	ephemeral.Traceparent = parent
	unsampled := by(community, event(t, "alice", nostrtest.Content("unsampled")), "alice")
	unsampled.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	malformed := by(community, event(t, "alice", nostrtest.Content("malformed")), "alice")
	malformed.Traceparent = "nonsense"
	c.accept(sampled, ephemeral, unsampled, malformed)

	byName := map[string]tracetest.SpanStubs{}
	for _, s := range spans.GetSpans() {
		byName[s.Name] = append(byName[s.Name], s)
	}
	require.Len(t, byName["ingest.publish"], 2)
	stored := byName["ingest.publish"][0]
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", stored.SpanContext.TraceID().String())
	require.Equal(t, "b7ad6b7169203331", stored.Parent.SpanID().String())
	require.Contains(t, stored.Attributes, attribute.String(telemetry.KeyReason, "accepted"))
	require.Contains(t, stored.Attributes, attribute.Int(telemetry.KeyKind, 1))

	envelopes := h.events().await(t, 3)
	require.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-"+stored.SpanContext.SpanID().String()+"-01", envelopes[0].GetHeader().GetTraceparent())
	require.Empty(t, envelopes[1].GetHeader().GetTraceparent())
	require.Empty(t, envelopes[2].GetHeader().GetTraceparent())
	require.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-"+byName["ingest.publish"][1].SpanContext.SpanID().String()+"-01",
		h.ephemeral().await(t, 1)[0].GetHeader().GetTraceparent())
	require.NotZero(t, h.ephemeral().await(t, 1)[0].GetHeader().GetJudgedAt())
}
