package nostr

import (
	"errors"
	"strconv"
	"time"
)

// MaxReminderDelay is how far ahead of its acceptance a reminder may be due (NIP-ER). It is enforced on writing and
// advertised in NIP-11 as max_not_before_delta.
const MaxReminderDelay = 365 * 24 * time.Hour

// maxNotBefore is the greatest integer that clients in JavaScript hold exactly.
const maxNotBefore = 1<<53 - 1

// ErrNotBefore says that an event has several not_before tags, or one whose value is no canonical decimal number
// from 0 to 2^53-1.
var ErrNotBefore = errors.New("malformed not_before")

// NotBefore returns when a reminder is due, in Unix seconds, from its not_before tag (NIP-ER), and false if it has none: it is
// done or cancelled then. The error is ErrNotBefore.
func (e *Event) NotBefore() (int64, bool, error) {
	switch e.Tags.Count("not_before") {
	case 0:
		return 0, false, nil
	case 1:
	default:
		return 0, false, ErrNotBefore
	}
	text, _ := e.Tags.First("not_before")
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil || at < 0 || at > maxNotBefore || strconv.FormatInt(at, 10) != text {
		return 0, false, ErrNotBefore
	}
	return at, true, nil
}
