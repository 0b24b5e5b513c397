package client

import (
	"context"
	"fmt"
	"io"
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
	// IDs prints the id of each event before it.
	IDs bool
	// Out receives the events, Notes that there are none.
	Out, Notes io.Writer
}

// maxAnswer bounds what a query keeps; relays return fewer.
const maxAnswer = 10_000

// Query prints the stored events that match.
func Query(ctx context.Context, cfg QueryConfig) error {
	messages, err := ask(ctx, cfg.Config, cfg.Filter)
	if err != nil {
		return err
	}
	if len(messages) == 0 {
		fmt.Fprintln(cfg.Notes, "nothing that matches is stored, or nothing that this key may read")
	}
	if !cfg.JSON {
		inOrder(messages)
	}
	p := printer{out: cfg.Out, json: cfg.JSON, ids: cfg.IDs, now: time.Now}
	for _, m := range messages {
		if err := p.event(m.event, m.raw); err != nil {
			return err
		}
	}
	return nil
}

// stored asks once and returns the answer as it comes.
func (c *Conn) stored(ctx context.Context, filter nostr.Filter) ([]message, error) {
	const id = "query"
	if err := c.Request(ctx, id, filter); err != nil {
		return nil, err
	}
	var messages []message
	for {
		frame, err := c.Next(ctx)
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
			return nil, refusedQuery(frame.Message)
		case wire.LabelEvent:
			m, err := parse(frame.RawEvent)
			if err == nil && answers(&filter, m.event) && len(messages) < maxAnswer {
				messages = append(messages, m)
			}
		}
	}
}

// invite asks for the event that holds a code (kind 28935).
func (c *Conn) invite(ctx context.Context, _ Wish) (string, error) {
	found, err := c.stored(ctx, nostr.Filter{Kinds: []nostr.Kind{nostr.KindRelayInvite}})
	if err != nil || len(found) == 0 {
		return "", err
	}
	code, _ := found[0].event.Tags.First("claim")
	return code, nil
}
