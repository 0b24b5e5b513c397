package policy

import (
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// A job is asked of an agent by an event (kind 43001) whose one p tag names it. What comes of it names the request in an e
// tag, and is in the same channel, or in none as well: that it was accepted, how it goes on, its result or its failure, by the
// agent; and that it is cancelled, by who has asked for it, or by the agent's owner. What a job is about, and in which
// order its events come, is between those.

var noJob = invalid("job request not found, or not yours to answer")

// checkJob refuses a request that no one agent could take for its own.
func checkJob(ev *nostr.Event) Verdict {
	agent, ok := oneKey(ev, "p")
	switch {
	case !ok:
		return invalid("a job request must have exactly one p tag, with the key of an agent")
	case agent == ev.PubKey:
		return invalid("a job is asked of somebody else")
	}
	return Verdict{}
}

// jobAnswer is what holds for what an agent says of a job.
var jobAnswer = referenceRule{
	unnamed:  invalid("an event of a job must reference its request via e tag"),
	missing:  noJob,
	standing: true,
	judge: func(_ *Candidate, t Target, s Standing) Verdict {
		if t.Kind != nostr.KindJobRequest || !s.Named {
			return noJob
		}
		return Verdict{}
	},
}

// jobCancel is what holds for the end of a job by somebody else than the agent.
var jobCancel = referenceRule{
	unnamed:  jobAnswer.unnamed,
	missing:  noJob,
	standing: true,
	judge: func(c *Candidate, t Target, s Standing) Verdict {
		if t.Kind != nostr.KindJobRequest || (t.PubKey != c.Event.PubKey && !s.OwnsNamed) {
			return noJob
		}
		return Verdict{}
	},
}
