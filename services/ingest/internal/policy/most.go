package policy

import (
	"fmt"

	"github.com/apiary-relay/apiary/pkg/fault"
)

// Most is how much there may be of channels, or of conversations; 0 is any number.
type Most struct {
	// Member is how many of them that are still there one key, its owner if it is an agent, and all agents of that one may
	// have made together. It does not bind owners and admins of the community.
	Member int
	// Community is how many a community may have, archived ones included.
	Community int
}

// Made is how many there are, counted no further than to the limit.
type Made struct {
	// Member is how many the author and its agents, or its owner and that one's agents, have made.
	Member int
	// Community is how many the community has.
	Community int
	// Moderator is set when the author is an owner or admin of the community.
	Moderator bool
}

// Judge decides whether there may be one more of what is called what.
func (m Most) Judge(made Made, what string) Verdict {
	switch {
	case m.Community > 0 && made.Community >= m.Community:
		return Verdict{fault.Restricted, fmt.Sprintf("the community has %d %s, as many as it may have", m.Community, what)}
	case m.Member > 0 && made.Member >= m.Member && !made.Moderator:
		return Verdict{fault.Restricted, fmt.Sprintf("you and your agents have made %d %s, as many as you may", m.Member, what)}
	}
	return Verdict{}
}
