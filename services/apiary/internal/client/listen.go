package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

const (
	// overlap is how far before the newest event seen a new subscription asks again: relays take events
	// whose created_at is this much off, so a late one may be older than an early one.
	overlap = 15 * time.Minute
	// remembered bounds the ids kept to leave out what the overlap repeats.
	remembered = 16_384
	// storedMax is what relays return at most for one filter; as many after a gap may be not all.
	storedMax = 500
	// firstPause and lastPause bound the wait before the next try; it doubles in between.
	firstPause = 250 * time.Millisecond
	lastPause  = 15 * time.Second
	// pingEvery and pingTimeout find out that a relay is gone without a word.
	pingEvery   = 30 * time.Second
	pingTimeout = 15 * time.Second
	// dialTimeout bounds a connection attempt, authentication included.
	dialTimeout = 15 * time.Second
	subID       = "listen"
)

// ListenConfig says what to print.
type ListenConfig struct {
	Config
	// Filter selects the events; its Since and Limit are set by Listen.
	Filter nostr.Filter
	// History is how many stored events are printed first.
	History int
	// JSON prints the events as they came instead of lines for people.
	JSON bool
	// IDs prints the id of each event before it.
	IDs bool
	// Out receives the events, Notes what happens to the connection.
	Out, Notes io.Writer
}

// Listen prints events as they come until ctx ends, which is not an error. When the connection is lost,
// or the relay closes the subscription for a reason that passes (it lagged), Listen subscribes again and
// prints what it has missed, everything once, and a reminder once more when it is due. It returns an error when trying again is useless.
func Listen(ctx context.Context, cfg ListenConfig) error {
	l := &listener{
		cfg:     cfg,
		printer: printer{out: cfg.Out, json: cfg.JSON, ids: cfg.IDs, now: time.Now},
		seen:    newRecent(remembered),
		newest:  time.Now().Unix(),
		pause:   firstPause,
	}
	for {
		err := l.session(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the user stopped it
		}
		var final *finalError
		if errors.As(err, &final) || errors.Is(err, ErrAuth) {
			return err
		}
		pause := l.pause/2 + rand.N(l.pause/2) //nolint:gosec // spreads clients, guards nothing
		l.pause = min(2*l.pause, lastPause)
		fmt.Fprintf(cfg.Notes, "%v; trying again in %s\n", err, pause.Round(10*time.Millisecond))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// finalError is one that trying again does not change.
type finalError struct{ message string }

func (e *finalError) Error() string { return e.message }

// errClosed says that the relay ended the subscription but not the connection.
var errClosed = errors.New("the relay closed the subscription")

// listener is the state that outlives connections. Only Listen's goroutine touches it.
type listener struct {
	cfg     ListenConfig
	printer printer
	seen    *recent
	newest  int64 // greatest created_at seen, at first the time of the start
	again   bool  // a subscription has reached its EOSE before: what is missed since is printed
	pause   time.Duration
}

// session is one connection. It returns when the connection is lost or of no more use.
func (l *listener) session(ctx context.Context) error {
	conn, err := dial(ctx, l.cfg.Config)
	if err != nil {
		return err
	}
	defer conn.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return keepAlive(ctx, conn) })
	group.Go(func() error {
		for {
			err := l.subscription(ctx, conn)
			if !errors.Is(err, errClosed) {
				return err
			}
			fmt.Fprintf(l.cfg.Notes, "%v; subscribing again\n", err)
			select {
			case <-time.After(firstPause): // a relay that lags is not helped by haste
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	return group.Wait()
}

// dial is Dial with a bound of its own; the connection lives on after it.
func dial(ctx context.Context, cfg Config) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return Dial(ctx, cfg)
}

func keepAlive(ctx context.Context, conn *Conn) error {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		within, cancel := context.WithTimeout(ctx, pingTimeout)
		err := conn.Ping(within)
		cancel()
		if err != nil {
			return fmt.Errorf("the relay does not answer: %w", err)
		}
	}
}

// subscription is one REQ: stored events are collected until EOSE and printed oldest first, then live
// ones are printed as they come.
func (l *listener) subscription(ctx context.Context, conn *Conn) error {
	if err := conn.Request(ctx, subID, l.filters()...); err != nil {
		return err
	}
	var stored []message
	live := false
	for {
		frame, err := conn.Next(ctx)
		if err != nil {
			return err
		}
		switch {
		case frame.Label == wire.LabelNotice:
			fmt.Fprintf(l.cfg.Notes, "notice: %s\n", Printable(frame.Message))
		case frame.SubID != subID:
		case frame.Label == wire.LabelClosed:
			return closed(frame.Message)
		case frame.Label == wire.LabelEOSE && !live:
			live, l.pause = true, firstPause
			if err := l.backlog(stored); err != nil {
				return err
			}
			stored = nil
		case frame.Label == wire.LabelEvent:
			m, err := parse(frame.RawEvent)
			if err != nil || !answers(&l.cfg.Filter, m.event) || l.seen.has(sightingOf(m.event, time.Now())) {
				continue
			}
			if !live {
				if len(stored) < 4*storedMax {
					stored = append(stored, m)
				}
				continue
			}
			if err := l.print(m); err != nil {
				return err
			}
		}
	}
}

// filters are what the next REQ asks for. The first asks for the history, and for the ids of what a
// later overlap would repeat.
func (l *listener) filters() []nostr.Filter {
	since := l.newest - int64(overlap/time.Second)
	missed := l.cfg.Filter
	missed.Since = &since
	if l.again || l.cfg.History == 0 {
		return []nostr.Filter{missed}
	}
	history := l.cfg.Filter
	history.Limit = &l.cfg.History
	return []nostr.Filter{history, missed}
}

// backlog prints stored events, oldest first: the history at first, all of them later.
func (l *listener) backlog(stored []message) error {
	inOrder(stored)
	if !l.again {
		for len(stored) > l.cfg.History {
			l.see(stored[0].event)
			stored = stored[1:]
		}
		fmt.Fprintf(l.cfg.Notes, "listening on %s\n", l.cfg.where())
	} else {
		fmt.Fprintf(l.cfg.Notes, "listening again\n")
		if len(stored) >= storedMax {
			fmt.Fprintf(l.cfg.Notes, "more was missed than the relay returns at once; a query shows the rest\n")
		}
	}
	l.again = true
	for _, m := range stored {
		if err := l.print(m); err != nil {
			return err
		}
	}
	return nil
}

// see remembers an event and reports whether it is new.
func (l *listener) see(event *nostr.Event) bool {
	l.newest = max(l.newest, event.CreatedAt)
	return l.seen.add(sightingOf(event, time.Now()))
}

// print prints an event once.
func (l *listener) print(m message) error {
	if !l.see(m.event) {
		return nil
	}
	if err := l.printer.event(m.event, m.raw); err != nil {
		return &finalError{"print an event: " + err.Error()}
	}
	return nil
}

// message is an event and the bytes it came in.
type message struct {
	event *nostr.Event
	raw   []byte
}

// parse reads and verifies an event: a relay is trusted to pass on, not to speak for others.
func parse(raw []byte) (message, error) {
	event, err := wire.DecodeEvent(raw, wire.DefaultLimits())
	if err != nil {
		return message{}, err
	}
	if err := event.Verify(); err != nil {
		return message{}, err
	}
	return message{event: event, raw: raw}, nil
}

// closed tells reasons that pass from those that do not.
func closed(text string) error {
	if passing(text) {
		return fmt.Errorf("%w: %s", errClosed, Printable(text))
	}
	return &finalError{"the relay refuses the subscription: " + Printable(text)}
}
