package commit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

func TestFramesOfAnAgentAreBounded(t *testing.T) {
	now := time.Unix(nostrtest.Epoch, 0)
	frames := NewFrames(2, func() time.Time { return now })
	send := func(community int64, author, agent string) policy.Verdict {
		return frames.admit(&policy.Candidate{
			Submission: policy.Submission{Community: community}, Event: &nostr.Event{PubKey: nostrtest.PubKey(author)},
			Agency: &policy.Agency{Agent: nostrtest.PubKey(agent), Frame: true},
		})
	}
	for range 2 {
		require.Equal(t, policy.Verdict{}, send(1, "bot", "bot"))
	}
	require.Equal(t, policy.TooManyFrames(2), send(1, "bot", "bot"))
	require.Equal(t, "observer frame rate exceeded (2/sec per agent)", policy.TooManyFrames(2).Message)
	require.Equal(t, policy.Verdict{}, send(2, "bot", "bot"), "in another community")
	require.Equal(t, policy.Verdict{}, send(1, "other", "other"))
	require.Equal(t, policy.Verdict{}, send(1, "bob", "bot"), "its owner gets through")
	require.Equal(t, policy.Verdict{}, frames.admit(&policy.Candidate{Event: &nostr.Event{}}), "what is no frame")
	now = now.Add(time.Second)
	require.Equal(t, policy.Verdict{}, send(1, "bot", "bot"))

	unbounded := NewFrames(0, time.Now)
	for range 1000 {
		require.Equal(t, policy.Verdict{}, unbounded.admit(&policy.Candidate{Event: &nostr.Event{}, Agency: &policy.Agency{Frame: true}}))
	}
}
