package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

const (
	// tooOld is when an event without an OK is given up. What a client asks for again after a pause reaches back
	// further than that (see overlap), so that an event which was accepted late is not missed for its age.
	tooOld = 20 * time.Second
	// window bounds the events of one publisher that wait for their OK.
	window = 64
	// ephemeralEvery is how many events of a channel there are for one that is ephemeral: somebody types.
	ephemeralEvery = 10
	// finishing bounds the last change of members, after the end.
	finishing = 2 * time.Minute
)

// Use publishes and changes members for as long as ctx lasts, and returns when everything that is on its way by then
// has been acknowledged or given up. An error says that the relay refused something, or that a change of members
// never was acknowledged: then nobody can say any more who is entitled to what.
func (l *Load) Use(ctx context.Context) error {
	using, ctx := errgroup.WithContext(ctx)
	for i := range l.cfg.Load.Publishers {
		using.Go(func() error { return l.publisher(ctx, i) })
	}
	for i, t := range l.topics {
		if len(t.churners) > 0 {
			using.Go(func() error { return l.churn(ctx, t, l.cfg.Load.Churn*time.Duration(i+1)/time.Duration(len(l.topics))) })
		}
	}
	return using.Wait()
}

// publisher publishes its share of the rate, to all topics in turn. All publishers are one user.
func (l *Load) publisher(ctx context.Context, n int) error {
	s := &speaker{load: l, key: l.owner.key, next: n}
	defer s.close()
	tick := time.NewTicker(time.Second * time.Duration(l.cfg.Load.Publishers) / time.Duration(l.cfg.Load.Rate))
	defer tick.Stop()
	onTheWay, failed := errgroup.WithContext(ctx)
	onTheWay.SetLimit(window)
	for {
		select {
		case <-tick.C:
		case <-failed.Done():
			return onTheWay.Wait()
		}
		number := l.published.Add(1)
		turn := int(number) % len(l.topics)
		t := l.topics[turn]
		kind := t.kind()
		if t.name != global && !l.cfg.Restarts && (int(number)/len(l.topics)+turn)%ephemeralEvery == 0 {
			kind = nostr.KindTyping
		}
		onTheWay.Go(func() error {
			return l.publish(context.WithoutCancel(ctx), s, t, kind, "event "+strconv.FormatInt(number, 10))
		})
	}
}

// publish publishes one event and writes down when.
func (l *Load) publish(ctx context.Context, s *speaker, t *topic, kind nostr.Kind, content string) error {
	ctx, cancel := context.WithTimeout(ctx, tooOld)
	defer cancel()
	channel := t.name
	if t.name == global {
		channel = ""
	}
	event, err := l.sign(s.key, kind, channel, content)
	if err != nil {
		return err
	}
	l.cfg.Log.Publishing(event.ID, t.name, event.CreatedAt, kind.IsEphemeral())
	err = s.publish(ctx, event)
	switch {
	case err == nil:
		l.cfg.Log.Acknowledged(event.ID)
	case ctx.Err() != nil:
		l.abandoned.Add(1)
		l.cfg.Note.InfoContext(ctx, "event given up", slog.String("error", err.Error()))
	default:
		return err
	}
	return nil
}

// churn removes a channel's churners in turn and adds each again before the next is removed. The last one may stay out.
func (l *Load) churn(ctx context.Context, t *topic, first time.Duration) error {
	if pause(ctx, first) != nil {
		return nil
	}
	tick := time.NewTicker(l.cfg.Load.Churn)
	defer tick.Stop()
	// A change that has begun is brought to its end.
	finish := func(s *subscriber, member bool) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishing)
		defer cancel()
		return l.change(ctx, t, s, member)
	}
	for i := 0; ; i++ {
		s := t.churners[i/2%len(t.churners)]
		if err := finish(s, i%2 == 1); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Mark removes the first member of each private channel that changes for good and then publishes the marks, one to
// each, in order. It is done once, before Use. The error says when there are not enough such channels.
func (l *Load) Mark(ctx context.Context, marks ...string) error {
	for _, t := range l.topics {
		if len(marks) == 0 {
			return nil
		}
		if len(t.churners) == 0 {
			continue
		}
		out := t.churners[0]
		t.churners = t.churners[1:]
		if err := l.change(ctx, t, out, false); err != nil {
			return err
		}
		if err := l.publish(ctx, l.owner, t, t.kind(), marks[0]); err != nil {
			return fmt.Errorf("publish %s: %w", marks[0], err)
		}
		marks = marks[1:]
	}
	if len(marks) > 0 {
		return errors.New("not enough private channels whose members change")
	}
	return nil
}
