package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// session is the life of one consumer on the server. Only the goroutine of ordered.run touches it.
type session struct {
	*ordered
	consumer string
	// received counts the consumer's messages; the server numbers them without a hole.
	received uint64
	// candidate was next-1 at reached: it becomes sound when a later look at the stream finds nothing
	// missing.
	candidate uint64
	reached   time.Time
}

// consume takes messages until something is wrong.
func (s *session) consume(ctx context.Context) error {
	beat := s.checkEvery
	if s.until != 0 {
		beat = min(beat, replayBeat)
	}
	p, err := s.bus.newPuller(s.stream, s.consumer, beat)
	if err != nil {
		return err
	}
	defer p.close()
	for {
		msg, beat, err := p.next(ctx)
		if err != nil {
			return err
		}
		if msg == nil {
			err = s.beat(ctx, beat)
		} else {
			err = s.take(ctx, msg)
		}
		if err != nil {
			return err
		}
	}
}

// take hands one message over.
func (s *session) take(ctx context.Context, msg *nats.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("read message position: %w", err)
	}
	seq := meta.Sequence.Stream
	if meta.Sequence.Consumer != s.received+1 || seq < s.next {
		return errAgain // one was lost on the way
	}
	s.received++
	if err := s.prove(ctx); err != nil {
		return err
	}
	if s.until != 0 && seq > s.until {
		s.next = s.until + 1
		return s.complete(ctx)
	}
	err = s.deliver(headerCarrier(msg.Header), Msg{
		Subject: msg.Subject, Data: msg.Data, Epoch: s.epoch, Sequence: seq, Published: meta.Timestamp, Pending: meta.NumPending,
	})
	if err != nil {
		return ended(err)
	}
	s.bus.metrics.consumed.Add(ctx, 1, s.attr)
	s.next = seq + 1
	return s.complete(ctx)
}

// beat makes sure that what was sent has arrived, and moves on over what the stream holds for others.
func (s *session) beat(ctx context.Context, h heartbeat) error {
	if h.sent != s.received {
		return errAgain // one was lost on the way
	}
	s.next = max(s.next, h.scanned+1)
	if err := s.prove(ctx); err != nil {
		return err
	}
	if err := s.complete(ctx); err != nil {
		return err
	}
	if s.onProgress == nil || s.sound == 0 {
		return nil
	}
	return ended(s.tellProgress(s.epoch, s.sound))
}

// prove makes sure, every second, that what the server went over was for other subjects, and not dropped
// by the stream's limits before it could be sent. A stream drops from its front only: when the front is
// not behind the last sound sequence now, nothing was missing before.
func (s *session) prove(ctx context.Context) error {
	if time.Since(s.reached) < s.proveEvery {
		return nil
	}
	state, err := s.bus.stateSince(ctx, s.stream, s.reached)
	if err != nil {
		return err
	}
	if state.Epoch != s.epoch || state.FirstSeq > s.sound+1 {
		return errAgain // which begins with telling it
	}
	s.sound = s.candidate
	s.candidate, s.reached = s.next-1, time.Now()
	return nil
}

// complete returns ErrStop when a replay is, and nothing was missing.
func (s *session) complete(ctx context.Context) error {
	if s.until == 0 || s.next <= s.until {
		return nil
	}
	state, err := s.bus.StreamState(ctx, s.stream)
	if err != nil {
		return err
	}
	if state.Epoch != s.epoch || state.FirstSeq > s.sound+1 {
		return errAgain
	}
	return ErrStop
}
