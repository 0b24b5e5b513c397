package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
)

// Sub is an open subscription.
type Sub struct {
	// ID is its id.
	ID string
	// Stored are the events that came before EOSE.
	Stored []*nostr.Event

	user *User
	mark int // behind the last frame that was looked at
}

// Open opens a subscription and reads it up to EOSE. A filter is anything that JSON can carry.
func (u *User) Open(filters ...any) *Sub {
	return u.OpenAs(u.conn.NewSub(), filters...)
}

// OpenAs is Open with a subscription id.
func (u *User) OpenAs(id string, filters ...any) *Sub {
	s, end := u.request(id, filters)
	u.t.Check(end.Label == client.LabelEOSE, "stored events, then EOSE", "%s", end)
	return s
}

// Request sends a REQ and returns the EOSE or CLOSED that answers it, and the events before that.
func (u *User) Request(filters ...any) (*Sub, *client.Frame) {
	return u.request(u.conn.NewSub(), filters)
}

func (u *User) request(id string, filters []any) (*Sub, *client.Frame) {
	s := &Sub{ID: id, user: u, mark: u.conn.Mark()}
	ctx, cancel := u.t.Step()
	defer cancel()
	err := u.conn.SendJSON(ctx, append([]any{"REQ", id}, filters...)...)
	u.t.Check(err == nil, "the relay reads a REQ", "%v", err)
	for {
		f, err := s.next()
		u.t.Check(err == nil, "REQ is answered with EOSE or CLOSED", "%s", u.sawFor(err, "REQ", filters))
		switch f.Label {
		case client.LabelEvent:
			s.Stored = append(s.Stored, s.event(f))
		case client.LabelClosed:
			u.t.CheckClosed(f)
			return s, f
		default:
			return s, f
		}
	}
}

func (u *User) sawFor(err error, label string, filters []any) string {
	sent, _ := json.Marshal(filters) // was sent before
	return fmt.Sprintf("%s, after %s %s", u.saw(err), label, client.Excerpt(sent))
}

// CheckClosed fails the case unless the CLOSED says why, for machines.
func (t *T) CheckClosed(f *client.Frame) {
	t.Check(prefix(f.Message) != "", "CLOSED with a machine-readable prefix", "%s", f)
}

// next waits for the next frame of the subscription.
func (s *Sub) next() (*client.Frame, error) {
	ctx, cancel := s.user.t.Step()
	defer cancel()
	return s.await(ctx)
}

func (s *Sub) await(ctx context.Context) (*client.Frame, error) {
	f, mark, err := s.user.conn.Await(ctx, s.mark, func(f *client.Frame) bool {
		return f.Sub == s.ID && f.Label != client.LabelCount
	})
	s.mark = mark
	return f, err
}

// event returns the event of an EVENT, which must be one.
func (s *Sub) event(f *client.Frame) *nostr.Event {
	s.user.t.Check(f.Malformed == nil, "an event", "%s: %v", f, f.Malformed)
	err := f.Event.Verify()
	s.user.t.Check(err == nil, "an event that verifies", "%s: %v", f, err)
	return f.Event
}

// Next waits for the next live event.
func (s *Sub) Next() *nostr.Event {
	f, err := s.next()
	s.user.t.Check(err == nil, "an event comes live", "%s", s.user.saw(err))
	s.user.t.Check(f.Label == client.LabelEvent, "an event comes live", "%s", f)
	return s.event(f)
}

// Expect waits for these live events, in any order, and nothing else.
func (s *Sub) Expect(events ...*nostr.Event) {
	wanted := map[nostr.ID]bool{}
	for _, e := range events {
		wanted[e.ID] = true
	}
	for len(wanted) > 0 {
		e := s.Next()
		s.user.t.Check(wanted[e.ID], "live, once each: "+List(events), "%s", describe(e))
		delete(wanted, e.ID)
	}
}

// Silent fails the case if anything comes for the subscription while the relay is given time to send it.
func (s *Sub) Silent(expected string) {
	ctx, cancel := context.WithTimeout(s.user.t.ctx, s.user.t.opts.Quiet)
	defer cancel()
	f, err := s.await(ctx)
	if err == nil {
		s.user.t.Fail(expected, "%s", f)
	}
	s.user.t.Check(errors.Is(err, context.DeadlineExceeded), "the connection stays open", "%v", err)
}

// SilentBut is Silent, except for frames of one label.
func (s *Sub) SilentBut(expected, label string) {
	ctx, cancel := context.WithTimeout(s.user.t.ctx, s.user.t.opts.Quiet)
	defer cancel()
	for {
		f, err := s.await(ctx)
		if err != nil {
			return
		}
		s.user.t.Check(f.Label == label, expected, "%s", f)
	}
}

// Ended waits for the CLOSED with which the relay ends the subscription.
func (s *Sub) Ended() {
	f, err := s.next()
	s.user.t.Check(err == nil && f.Label == client.LabelClosed, "CLOSED", "%s", Saw(f, err))
	s.user.t.CheckClosed(f)
}

// Live reads what comes until n events have come and then nothing for a while.
func (s *Sub) Live(n int) []*nostr.Event {
	var events []*nostr.Event
	for {
		wait := s.user.t.opts.Step
		if len(events) >= n {
			wait = s.user.t.opts.Quiet
		}
		ctx, cancel := context.WithTimeout(s.user.t.ctx, wait)
		f, err := s.await(ctx)
		cancel()
		if err != nil {
			return events
		}
		s.user.t.Check(f.Label == client.LabelEvent, "live events", "%s", f)
		events = append(events, s.event(f))
	}
}

// Close sends CLOSE.
func (s *Sub) Close() {
	ctx, cancel := s.user.t.Step()
	defer cancel()
	err := s.user.conn.SendJSON(ctx, "CLOSE", s.ID)
	s.user.t.Check(err == nil, "the relay reads a CLOSE", "%v", err)
}

// Query returns the stored events for filters and closes the subscription.
func (u *User) Query(filters ...any) []*nostr.Event {
	s := u.Open(filters...)
	s.Close()
	return s.Stored
}

// Has reports whether the relay returns the event for its id.
func (u *User) Has(e *nostr.Event) bool {
	return len(u.Query(map[string]any{"ids": []string{e.ID.String()}})) > 0
}

// Count sends a COUNT (NIP-45) and returns the frame that answers it, COUNT or CLOSED.
func (u *User) Count(filters ...any) *client.Frame {
	id, mark := u.conn.NewSub(), u.conn.Mark()
	ctx, cancel := u.t.Step()
	defer cancel()
	err := u.conn.SendJSON(ctx, append([]any{"COUNT", id}, filters...)...)
	u.t.Check(err == nil, "the relay reads a COUNT", "%v", err)
	f, _, err := u.conn.Await(ctx, mark, func(f *client.Frame) bool {
		return f.Sub == id && (f.Label == client.LabelCount || f.Label == client.LabelClosed)
	})
	u.t.Check(err == nil, "COUNT is answered with COUNT or CLOSED", "%s", u.saw(err))
	if f.Label == client.LabelClosed {
		u.t.CheckClosed(f)
	} else {
		u.t.Check(f.Malformed == nil, "a COUNT", "%s: %v", f, f.Malformed)
	}
	return f
}

// Same fails the case unless the events are these, in this order.
func (t *T) Same(what string, want, got []*nostr.Event) {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			t.Fail(what+": "+List(want), "%s; number %d is missing: %s", List(got), i+1, describe(want[i]))
		case i >= len(want):
			t.Fail(what+": "+List(want), "%s; number %d is too much: %s", List(got), i+1, describe(got[i]))
		case want[i].ID != got[i].ID:
			t.Fail(what+": "+List(want), "%s; number %d is %s, not %s", List(got), i+1, describe(got[i]), describe(want[i]))
		}
	}
}

// SameSet fails the case unless the events are these, each once, in any order.
func (t *T) SameSet(what string, want, got []*nostr.Event) {
	missing := map[nostr.ID]bool{}
	for _, e := range want {
		missing[e.ID] = true
	}
	for _, e := range got {
		t.Check(missing[e.ID], what+": "+List(want), "%s is too much in %s", e.ID, List(got))
		delete(missing, e.ID)
	}
	t.Check(len(missing) == 0, what+": "+List(want), "%s", List(got))
}

// List returns events for a person.
func List(events []*nostr.Event) string {
	const most = 8
	var b strings.Builder
	for i, e := range events {
		if i == most {
			fmt.Fprintf(&b, " … (%d in all)", len(events))
			break
		}
		fmt.Fprintf(&b, " %.8s@%d", e.ID, e.CreatedAt)
	}
	if len(events) == 0 {
		return "none"
	}
	return "[" + strings.TrimSpace(b.String()) + "]"
}
