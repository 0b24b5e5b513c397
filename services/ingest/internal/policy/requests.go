package policy

import (
	"encoding/json"
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
)

// allRelays in a relay tag means every relay (NIP-62).
const allRelays = "ALL_RELAYS"

// maxVanishHosts is how many relays of a request to vanish are looked at.
const maxVanishHosts = 512

// parseVanish reads which relays the request is for. Whether this one is among them, the database knows.
func (c *Candidate) parseVanish() Verdict {
	v := &Vanish{}
	for t := range c.Event.Tags.All("relay") {
		if t.Value() == allRelays {
			v.All = true
			continue
		}
		host, ok := auth.RelayHost(t.Value())
		if ok && len(v.Hosts) < maxVanishHosts && !slices.Contains(v.Hosts, host) {
			v.Hosts = append(v.Hosts, host)
		}
	}
	if !v.All && len(v.Hosts) == 0 {
		return NotHere
	}
	c.Vanish = v
	return Verdict{}
}

// protectedTag marks an event that only its author may publish (NIP-70).
const protectedTag = "-"

func isProtected(tags nostr.Tags) bool { return tags.Count(protectedTag) > 0 }

// embedsProtected reports whether the content of a repost holds a protected event. The content is what somebody
// else's client made of it, so nothing is asked of it but that its tags can be found.
func embedsProtected(content string) bool {
	var embedded struct {
		Tags [][]any `json:"tags"`
	}
	// A value of another type is left out of what is read, and what is no JSON embeds nothing.
	_ = json.Unmarshal([]byte(content), &embedded)
	return slices.ContainsFunc(embedded.Tags, func(t []any) bool { return len(t) > 0 && t[0] == protectedTag })
}
