package checker

import "time"

// rights are when a reader may see a topic, as far as a client can know.
type rights struct {
	always  bool
	changes []change // alternating or not, in order; none overlap
}

// throughout reports whether the reader certainly may at every moment of an interval.
func (r rights) throughout(from, to time.Duration) bool {
	if r.always {
		return true
	}
	certain := false
	for _, ch := range r.changes {
		switch {
		case ch.acked <= from:
			certain = ch.member
		case ch.sent <= to && !ch.member:
			return false
		}
	}
	return certain
}

// sometime reports whether the reader may at some moment of an interval, or could be so.
func (r rights) sometime(from, to time.Duration) bool {
	if r.always {
		return true
	}
	could := false
	for _, ch := range r.changes {
		switch {
		case ch.acked < from:
			could = ch.member
		case ch.sent <= to:
			// What it was before this change it was for a while, or becomes now.
			could = could || ch.member
		}
	}
	return could
}
