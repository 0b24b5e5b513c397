package overlay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/overlay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func now() time.Time { return time.Unix(1_700_000_000, 0) }

func TestSignOverlays(t *testing.T) {
	s := overlay.New(nostrtest.Key("relay"), now)
	resp, err := s.SignOverlays(t.Context(), &ingestv1.SignOverlaysRequest{Overlays: []*ingestv1.Overlay{
		{Kind: 39006, Tags: []*ingestv1.OverlayTag{{Values: []string{"d", "lobby:head"}}}, Content: "{}"},
		{Kind: 39005, LeastCreatedAt: now().Unix() + 5},
	}})
	require.NoError(t, err)
	require.Len(t, resp.GetEvents(), 2)
	ev, err := wire.DecodeEvent(resp.GetEvents()[0], wire.DefaultLimits())
	require.NoError(t, err)
	require.NoError(t, ev.Verify())
	require.Equal(t, nostrtest.PubKey("relay"), ev.PubKey)
	require.Equal(t, nostr.Tags{{"d", "lobby:head"}}, ev.Tags)
	require.Equal(t, now().Unix(), ev.CreatedAt)
	require.Equal(t, "{}", ev.Content)
	ev, err = wire.DecodeEvent(resp.GetEvents()[1], wire.DefaultLimits())
	require.NoError(t, err)
	require.Equal(t, now().Unix()+5, ev.CreatedAt, "no older than the version before")
}

// Nothing else is signed for whoever asks.
func TestWhatIsNotSigned(t *testing.T) {
	s := overlay.New(nostrtest.Key("relay"), now)
	many := make([]*ingestv1.Overlay, 257)
	for i := range many {
		many[i] = &ingestv1.Overlay{Kind: 39005}
	}
	for name, overlays := range map[string][]*ingestv1.Overlay{
		"a note":                {{Kind: 1}},
		"members":               {{Kind: 13534}},
		"state":                 {{Kind: 39000}},
		"what is beyond 16 bit": {{Kind: 1<<16 + 39005}},
		"too long":              {{Kind: 39005, Content: strings.Repeat("x", 16<<10+1)}},
		"too many tags":         {{Kind: 39005, Tags: make([]*ingestv1.OverlayTag, 9)}},
		"too many":              many,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.SignOverlays(t.Context(), &ingestv1.SignOverlaysRequest{Overlays: overlays})
			require.Equal(t, fault.Invalid, fault.ReasonOf(err))
		})
	}
	_, err := overlay.New(nil, now).SignOverlays(t.Context(), &ingestv1.SignOverlaysRequest{})
	require.Equal(t, fault.Restricted, fault.ReasonOf(err))
}
