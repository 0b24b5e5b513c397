package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// session is the life of one consumer on the server. Only the goroutine of ordered.run touches it.
type session struct {
	*ordered
	consumer jetstream.Consumer
	// received counts the consumer's messages; the server numbers them without a hole.
	received uint64
	// verified: nothing was dropped from the stream unseen before this sequence was delivered.
	verified uint64
	// stuckAt and stuckFor are what the last check saw: how many messages had come, and how many the
	// server had sent.
	stuckAt  uint64
	stuckFor uint64
}

// consume takes messages until something is wrong.
func (s *session) consume(ctx context.Context) error {
	limit := max(pullBytes, int(s.bus.MaxPayload())+pullHeadroom)
	messages, err := s.consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(pullMessages, limit))
	if err != nil {
		return fmt.Errorf("pull messages: %w", err)
	}
	defer messages.Stop()
	for {
		if err := s.round(ctx, messages); err != nil {
			return err
		}
		if err := s.check(ctx); err != nil {
			return err
		}
	}
}

// round takes messages until it is time for a check.
func (s *session) round(ctx context.Context, messages jetstream.MessagesContext) error {
	round, cancel := context.WithTimeout(ctx, s.checkEvery)
	defer cancel()
	for {
		msg, err := messages.Next(jetstream.NextContext(round))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, context.DeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("next message: %w", err)
		}
		if err := s.take(ctx, msg); err != nil {
			return err
		}
	}
}

// take hands one message over.
func (s *session) take(ctx context.Context, msg jetstream.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("read message position: %w", err)
	}
	if meta.Sequence.Consumer != s.received+1 || meta.Sequence.Stream < s.next {
		return errAgain // one was lost on the way
	}
	s.received++
	seq := meta.Sequence.Stream
	if seq > s.next && seq > s.verified {
		if err := s.unbroken(ctx); err != nil {
			return err
		}
	}
	if s.until != 0 && seq > s.until {
		return ErrStop
	}
	err = s.handle(extract(ctx, msg), Msg{
		Subject: msg.Subject(), Data: msg.Data(), Epoch: s.epoch, Sequence: seq, Published: meta.Timestamp, Pending: meta.NumPending,
	})
	if err != nil {
		return ended(err)
	}
	s.next = seq + 1
	s.bus.metrics.consumed.Add(ctx, 1, s.attr)
	if s.until != 0 && (s.next > s.until || meta.NumPending == 0) {
		return ErrStop
	}
	return nil
}

// extract puts the publisher's trace into the context, if there is one.
func extract(ctx context.Context, msg jetstream.Msg) context.Context {
	header := headerCarrier(msg.Headers())
	if header.Get("traceparent") == "" {
		return ctx
	}
	return propagator.Extract(ctx, header)
}

// unbroken makes sure that the messages between the last one and this one were all for other subjects,
// not dropped by the stream's limits before they could be sent. A stream drops from its front only, so
// there is nothing to fear while the consumer is in its newer half, as of a second ago.
func (s *session) unbroken(ctx context.Context) error {
	state, err := s.bus.recentState(ctx, s.stream, s.stateAge())
	if err != nil {
		return err
	}
	if state.Epoch != s.epoch || state.FirstSeq > s.next {
		return errAgain
	}
	if s.next-state.FirstSeq >= (state.LastSeq+1-state.FirstSeq)/2 {
		return nil
	}
	// In the older half: if the front is not beyond next now, nothing was missing when the server sent what
	// it has sent until now.
	info, err := s.consumer.Info(ctx)
	if err != nil {
		return fmt.Errorf("look at consumer: %w", err)
	}
	if state, err = s.bus.StreamState(ctx, s.stream); err != nil {
		return err
	}
	if state.Epoch != s.epoch || state.FirstSeq > s.next {
		return errAgain
	}
	s.verified = info.Delivered.Stream
	return nil
}

// stateAge is how old the shared state of the stream may be.
func (s *session) stateAge() time.Duration { return min(stateMaxAge, s.checkEvery/2) }

// check makes sure that the consumer is still there and has got what was sent to it, and moves on over
// what the stream holds for others.
func (s *session) check(ctx context.Context) error {
	state, err := s.bus.recentState(ctx, s.stream, s.stateAge()) // before info: see below
	if err != nil {
		return err
	}
	info, err := s.consumer.Info(ctx)
	if err != nil {
		return fmt.Errorf("look at consumer: %w", err)
	}
	if state.Epoch != s.epoch || state.FirstSeq > s.next {
		return errAgain
	}
	sent := info.Delivered.Consumer
	if s.received < s.stuckFor && s.received == s.stuckAt {
		return errAgain // sent before the last check, and still not here
	}
	s.stuckAt, s.stuckFor = s.received, sent
	// Whatever the stream held when state was read, and was for us, has been sent and handled.
	if info.NumPending == 0 && sent == s.received && state.LastSeq >= s.next {
		s.next = state.LastSeq + 1
	}
	if s.onProgress == nil || s.next == 1 {
		return nil
	}
	return ended(s.onProgress(ctx, s.epoch, s.next-1))
}
