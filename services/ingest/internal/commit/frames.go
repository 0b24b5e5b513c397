package commit

import (
	"time"

	"github.com/apiary-relay/apiary/pkg/limit"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// frameAgents is of how many agents the frames are counted; the one that has sent none for longest is forgotten.
const frameAgents = 1 << 16

// Frames bounds how often agents send observer frames (NIP-AO), each in its community. What owners send to them is
// not counted: it must get through when an agent talks too much. It is safe for concurrent use.
type Frames struct {
	perSecond int
	now       func() time.Time
	agents    *limit.Keyed[policy.MemberKey]
}

// NewFrames returns a bound of so many frames a second, and at once; 0 is no bound.
func NewFrames(perSecond int, now func() time.Time) *Frames {
	return &Frames{perSecond, now, limit.NewKeyed[policy.MemberKey](float64(perSecond), max(perSecond, 1), frameAgents)}
}

func (f *Frames) admit(c *policy.Candidate) policy.Verdict {
	if c.Agency == nil || c.Event.PubKey != c.Agency.Agent {
		return policy.Verdict{}
	}
	if _, ok := f.agents.Allow(policy.MemberKey{Community: c.Community, PubKey: c.Agency.Agent}, 1, f.now()); !ok {
		return policy.TooManyFrames(f.perSecond)
	}
	return policy.Verdict{}
}
