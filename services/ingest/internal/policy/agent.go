package policy

import (
	"fmt"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Agency is what an event that goes between an agent and its owner says of the two (NIP-AO, NIP-AM).
type Agency struct {
	// Agent and Owner are what they are said to be.
	Agent, Owner nostr.PubKey
	// Frame is set for what is passed on while the agent works, at a rate that is the agent's.
	Frame bool
	// Drop is set for a frame of a sort that is not known here: it is accepted, for what may come, and not passed on.
	Drop bool
}

// FrameWindow is how far created_at of an observer frame may be from now, either way.
const FrameWindow = 5 * time.Minute

// Answers about what goes between an agent and its owner.
var (
	notFramesOwner  = Verdict{fault.Restricted, "observer frame is not authorized for this agent owner"}
	notMetricsOwner = Verdict{fault.Restricted, "agent-turn-metric is not for the owner of this agent"}
)

// TooManyFrames answers a frame that comes too soon after the others of its agent, which may send so many a second.
func TooManyFrames(perSecond int) Verdict {
	return Verdict{fault.RateLimited, fmt.Sprintf("observer frame rate exceeded (%d/sec per agent)", perSecond)}
}

// IsDropped reports whether an accepted event is not passed on.
func (c *Candidate) IsDropped() bool { return c.Agency != nil && c.Agency.Drop }

// parseFrame reads an observer frame: telemetry goes from an agent to its owner, control from the owner to the agent.
func (c *Candidate) parseFrame(now time.Time) Verdict {
	ev := c.Event
	if !checkTime(ev.CreatedAt, FrameWindow, now).Accepted() {
		return invalid("observer frame timestamp outside ±5 minute freshness window")
	}
	agent, ok := oneKey(ev, "agent")
	if !ok {
		return invalid("observer frame must have exactly one agent tag, with a public key")
	}
	if ev.Tags.Count("frame") != 1 {
		return invalid("observer frame must have exactly one frame tag")
	}
	other, _ := oneKey(ev, "p") // see checkForm
	c.Agency = &Agency{Agent: agent, Frame: true}
	switch sort, _ := ev.Tags.First("frame"); {
	case sort != "telemetry" && sort != "control":
		c.Agency.Owner, c.Agency.Drop = other, true
		if other == agent {
			c.Agency.Owner = ev.PubKey
		}
	case sort == "telemetry" && ev.PubKey == agent && other != agent:
		c.Agency.Owner = other
	case sort == "control" && other == agent && ev.PubKey != agent:
		c.Agency.Owner = ev.PubKey
	default:
		return notFramesOwner
	}
	return Verdict{}
}

// parseMetric reads what an agent's turn has used. In which channel that was its owner alone may know.
func (c *Candidate) parseMetric() Verdict {
	agent, ok := oneKey(c.Event, "agent")
	switch {
	case !ok || agent != c.Event.PubKey:
		return invalid("agent-turn-metric must have exactly one agent tag, with its author's key")
	case c.Event.Tags.Count("h") > 0:
		return invalid("agent-turn-metric must not have an h tag")
	}
	owner, _ := oneKey(c.Event, "p") // see checkForm
	c.Agency = &Agency{Agent: agent, Owner: owner}
	return Verdict{}
}

// admitAgency takes what goes between an agent and its owner only where the relay knows that they are: the tags alone would
// let anybody write to anybody.
func (c *Candidate) admitAgency(st *State) Verdict {
	owner, ok := st.Owners[MemberKey{c.Community, c.Agency.Agent}]
	switch {
	case ok && owner == c.Agency.Owner:
		return Verdict{}
	case c.Agency.Frame:
		return notFramesOwner
	}
	return notMetricsOwner
}
