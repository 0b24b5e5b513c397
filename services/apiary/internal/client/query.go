package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

// QueryConfig says what to ask for and how to print it.
type QueryConfig struct {
	Config
	// Filter is the question; its Limit bounds the answer.
	Filter nostr.Filter
	// JSON prints the events as they came, newest first. Lines for people are oldest first, like a
	// conversation.
	JSON bool
	// Out receives the events.
	Out io.Writer
}

// maxAnswer bounds what a query keeps; relays return fewer.
const maxAnswer = 10_000

// Query prints the stored events that match.
func Query(ctx context.Context, cfg QueryConfig) error {
	conn, err := dial(ctx, cfg.Config)
	if err != nil {
		return describe(ctx, "query", err)
	}
	defer conn.Close()
	messages, err := stored(ctx, conn, cfg.Filter)
	if err != nil {
		return describe(ctx, "query", err)
	}
	if !cfg.JSON {
		slices.SortStableFunc(messages, func(a, b message) int { return cmp.Compare(a.event.CreatedAt, b.event.CreatedAt) })
	}
	p := printer{out: cfg.Out, json: cfg.JSON, now: time.Now}
	for _, m := range messages {
		if err := p.event(m.event, m.raw); err != nil {
			return err
		}
	}
	return nil
}

// stored asks once and returns the answer as it comes.
func stored(ctx context.Context, conn *Conn, filter nostr.Filter) ([]message, error) {
	const id = "query"
	if err := conn.Request(ctx, id, filter); err != nil {
		return nil, err
	}
	var messages []message
	for {
		frame, err := conn.Next(ctx)
		if err != nil {
			return nil, err
		}
		if frame.SubID != id {
			continue
		}
		switch frame.Label { //nolint:exhaustive // the others have no subscription
		case wire.LabelEOSE:
			return messages, nil
		case wire.LabelClosed:
			return nil, errors.New("the relay refuses the query: " + Printable(frame.Message))
		case wire.LabelEvent:
			m, err := parse(frame.RawEvent)
			if err == nil && filter.Match(m.event) && len(messages) < maxAnswer {
				messages = append(messages, m)
			}
		}
	}
}
