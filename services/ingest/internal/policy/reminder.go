package policy

import (
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// parseReminder reads when a reminder is due (NIP-ER). What it is about is encrypted to its author; that it is done or
// cancelled shows in that it is due no more.
func (c *Candidate) parseReminder(now time.Time) Verdict {
	at, ok, err := c.Event.NotBefore()
	switch {
	case err != nil:
		return invalid("malformed not_before")
	case !ok:
		return Verdict{}
	case at > now.Add(nostr.MaxReminderDelay).Unix():
		return invalid("not_before too far in future")
	case c.ExpiresAt != 0 && c.ExpiresAt <= at:
		return invalid("expiration before not_before")
	}
	c.DueAt = at
	return Verdict{}
}
