package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

// pingKept is how long the relay keeps what Ping publishes (NIP-40).
const pingKept = time.Minute

// RoundTrip is what Ping measured, from when the event was sent.
type RoundTrip struct {
	// OK is when the relay said that it has the event, Live when a second connection received it.
	OK, Live time.Duration
}

// Ping publishes an event that soon expires and waits for it on a second connection. While the relay says that it cannot yet,
// as one does that has just been installed, it tries again until ctx ends; notes receives why. The way of the event is that
// of any other: nothing in the relay knows of pings.
func Ping(ctx context.Context, cfg Config, notes io.Writer) (RoundTrip, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		trip, err := pingOnce(ctx, cfg)
		var refused *RefusedError
		again := errors.Is(err, errClosed) || errors.As(err, &refused) && passing(refused.Message)
		if !again {
			return trip, err
		}
		fmt.Fprintf(notes, "%v; trying again in %s\n", err, pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return RoundTrip{}, describe(ctx, "ping", err)
		}
	}
}

func pingOnce(ctx context.Context, cfg Config) (RoundTrip, error) {
	listening, err := dial(ctx, cfg)
	if err != nil {
		return RoundTrip{}, fmt.Errorf("listen: %w", err)
	}
	defer listening.Close()
	publishing, err := dial(ctx, cfg)
	if err != nil {
		return RoundTrip{}, fmt.Errorf("publish: %w", err)
	}
	defer publishing.Close()

	now := time.Now()
	event := &nostr.Event{
		Kind: nostr.KindText, CreatedAt: now.Unix(), Content: "ping " + strconv.FormatInt(now.UnixNano(), 10),
		Tags: nostr.Tags{{"expiration", strconv.FormatInt(now.Add(pingKept).Unix(), 10)}},
	}
	if err := event.Sign(cfg.Key); err != nil {
		return RoundTrip{}, err
	}
	if err := listening.Request(ctx, subID, nostr.Filter{
		Kinds: []nostr.Kind{nostr.KindText}, Authors: []nostr.PubKey{cfg.Key.PubKey()}, Limit: new(int),
	}); err != nil {
		return RoundTrip{}, err
	}
	if err := listening.await(ctx, wire.LabelEOSE, event.ID); err != nil {
		return RoundTrip{}, fmt.Errorf("listen: %w", err)
	}
	var trip RoundTrip
	sent := time.Now()
	ok, message, err := publishing.Publish(ctx, event)
	if err != nil {
		return RoundTrip{}, fmt.Errorf("publish: %w", err)
	}
	if !ok {
		return RoundTrip{}, &RefusedError{Author: event.PubKey, Message: message}
	}
	trip.OK = time.Since(sent)
	if err := listening.await(ctx, wire.LabelEvent, event.ID); err != nil {
		return RoundTrip{}, fmt.Errorf("receive: %w", err)
	}
	trip.Live = time.Since(sent)
	return trip, nil
}

// await returns when the subscription has brought EOSE, or the event of that id.
func (c *Conn) await(ctx context.Context, label wire.Label, id nostr.ID) error {
	for {
		frame, err := c.Next(ctx)
		switch {
		case err != nil:
			return err
		case frame.SubID != subID:
		case frame.Label == wire.LabelClosed:
			return closed(frame.Message)
		case frame.Label == label && (label != wire.LabelEvent || frame.EventID == id):
			return nil
		}
	}
}
