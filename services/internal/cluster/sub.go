package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

// Sub is an open subscription.
type Sub struct {
	// ID is its subscription id, Stored its stored events in the order they came.
	ID     string
	Stored []*nostr.Event

	client *Client
	frames chan wire.RelayFrame
}

// Subscribe sends a REQ and waits for its EOSE.
func (c *Client) Subscribe(filters ...nostr.Filter) *Sub {
	c.tb.Helper()
	s, closed, err := c.request(filters)
	require.NoError(c.tb, err)
	require.Empty(c.tb, closed, "CLOSED")
	return s
}

// SubscribeRaw is Subscribe for a filter as it is written.
func (c *Client) SubscribeRaw(filter string) *Sub {
	c.tb.Helper()
	s, closed, err := c.start(func(id string) []byte { return []byte(`["REQ","` + id + `",` + filter + `]`) })
	require.NoError(c.tb, err)
	require.Empty(c.tb, closed, "CLOSED")
	return s
}

// Refused sends a REQ that the relay must refuse, and returns the reason.
func (c *Client) Refused(filters ...nostr.Filter) string {
	c.tb.Helper()
	_, closed, err := c.request(filters)
	require.NoError(c.tb, err)
	require.NotEmpty(c.tb, closed, "the relay answered")
	return closed
}

// Query returns the stored events that match.
func (c *Client) Query(filters ...nostr.Filter) []*nostr.Event {
	c.tb.Helper()
	s := c.Subscribe(filters...)
	s.Close()
	return s.Stored
}

// TryQuery is Query where the relay may refuse or go away; the error says that it did.
func (c *Client) TryQuery(filters ...nostr.Filter) ([]*nostr.Event, error) {
	c.tb.Helper()
	s, closed, err := c.request(filters)
	if err != nil {
		return nil, err
	}
	if closed != "" {
		return nil, errors.New(closed)
	}
	s.forget()
	// The relay may have gone away since it answered.
	_ = c.write(c.tb.Context(), wire.AppendClose(nil, s.ID))
	return s.Stored, nil
}

// QueryUntil queries until the answer comes and satisfies done: reads may fail while a service is away.
func (c *Client) QueryUntil(done func([]*nostr.Event) bool, filters ...nostr.Filter) []*nostr.Event {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), patience)
	defer cancel()
	for {
		stored, err := c.TryQuery(filters...)
		require.NotErrorIs(c.tb, err, errGone)
		if err == nil && done(stored) {
			return stored
		}
		pause(ctx)
		require.NoError(c.tb, ctx.Err(), "the answer never came")
	}
}

// Count returns the number in the relay's answer to COUNT.
func (c *Client) Count(filters ...nostr.Filter) uint64 {
	c.tb.Helper()
	return c.CountFrame(filters...).Count
}

// CountFrame returns the relay's answer to COUNT.
func (c *Client) CountFrame(filters ...nostr.Filter) wire.RelayFrame {
	c.tb.Helper()
	s := c.open()
	defer s.forget()
	require.NoError(c.tb, c.write(c.tb.Context(), wire.AppendCountReq(nil, s.ID, filters...)))
	frame, err := s.next()
	require.NoError(c.tb, err)
	require.Equal(c.tb, wire.LabelCount, frame.Label, frame.Message)
	return frame
}

func (c *Client) open() *Sub {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextSub++
	// Room for all that a test may leave unread, so that the reader never waits.
	s := &Sub{ID: fmt.Sprintf("sub-%d", c.nextSub), client: c, frames: make(chan wire.RelayFrame, 1<<14)}
	c.subs[s.ID] = s.frames
	return s
}

// request opens a subscription and waits for EOSE, or for CLOSED, whose message it returns.
func (c *Client) request(filters []nostr.Filter) (s *Sub, closed string, err error) {
	return c.start(func(id string) []byte { return wire.AppendReq(nil, id, filters...) })
}

// start sends the frame that opens a subscription.
func (c *Client) start(frame func(id string) []byte) (s *Sub, closed string, err error) {
	s = c.open()
	if err := c.write(c.tb.Context(), frame(s.ID)); err != nil {
		return nil, "", err
	}
	for {
		frame, err := s.next()
		if err != nil {
			return nil, "", err
		}
		switch frame.Label { //nolint:exhaustive // relays send no others to a subscription
		case wire.LabelEOSE:
			return s, "", nil
		case wire.LabelClosed:
			s.forget()
			return nil, frame.Message, nil
		case wire.LabelEvent:
			s.Stored = append(s.Stored, c.decode(frame.RawEvent))
		}
	}
}

// decode reads and verifies an event that the relay sent.
func (c *Client) decode(raw []byte) *nostr.Event {
	c.tb.Helper()
	event, err := wire.DecodeEvent(raw, wire.DefaultLimits())
	require.NoError(c.tb, err)
	require.NoError(c.tb, event.Verify())
	return event
}

func (s *Sub) next() (wire.RelayFrame, error) {
	ctx, cancel := context.WithTimeout(s.client.tb.Context(), patience)
	defer cancel()
	select {
	case frame := <-s.frames:
		return frame, nil
	case <-ctx.Done():
		return wire.RelayFrame{}, fmt.Errorf("nothing came for %s", s.ID)
	case <-s.client.gone:
	}
	// What came before the end counts.
	select {
	case frame := <-s.frames:
		return frame, nil
	default:
		return wire.RelayFrame{}, s.client.err
	}
}

// NextFrame waits for the next frame of the subscription.
func (s *Sub) NextFrame() wire.RelayFrame {
	s.client.tb.Helper()
	frame, err := s.next()
	require.NoError(s.client.tb, err)
	return frame
}

// Next waits for the next live event.
func (s *Sub) Next() *nostr.Event {
	s.client.tb.Helper()
	frame, err := s.next()
	require.NoError(s.client.tb, err)
	require.Equal(s.client.tb, wire.LabelEvent, frame.Label, frame.Message)
	return s.client.decode(frame.RawEvent)
}

// TryNext is Next for a connection that may go away.
func (s *Sub) TryNext() (*nostr.Event, error) {
	frame, err := s.next()
	if err != nil {
		return nil, err
	}
	require.Equal(s.client.tb, wire.LabelEvent, frame.Label, frame.Message)
	return s.client.decode(frame.RawEvent), nil
}

// Rest yields the frames that have come and were not read, without waiting for more.
func (s *Sub) Rest() iter.Seq[wire.RelayFrame] {
	return func(yield func(wire.RelayFrame) bool) {
		for {
			select {
			case frame := <-s.frames:
				if !yield(frame) {
					return
				}
			default:
				return
			}
		}
	}
}

// Silent fails the test if a live event has come that was not read.
func (s *Sub) Silent() {
	s.client.tb.Helper()
	for frame := range s.Rest() {
		require.Fail(s.client.tb, "unexpected frame", "%s %s %s", frame.Label, frame.Message, frame.RawEvent)
	}
}

// Close sends CLOSE and forgets the subscription.
func (s *Sub) Close() {
	s.client.tb.Helper()
	s.Stop()
	s.forget()
}

// Stop sends CLOSE. What the relay sends all the same is kept.
func (s *Sub) Stop() {
	s.client.tb.Helper()
	require.NoError(s.client.tb, s.client.write(s.client.tb.Context(), wire.AppendClose(nil, s.ID)))
}

func (s *Sub) forget() {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	delete(s.client.subs, s.ID)
}
