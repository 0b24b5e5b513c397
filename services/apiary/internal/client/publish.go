package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// RefusedError is the relay's verdict that it does not take an event.
type RefusedError struct {
	// Author is the event's, whom the operator may have to let in.
	Author nostr.PubKey
	// Message is the relay's, with its NIP-01 prefix.
	Message string
}

// Error names the author and quotes the relay.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the relay refuses the event of %s: %s", e.Author, Printable(e.Message))
}

// Publish signs event and publishes it. It returns the relay's remark on an accepted event, which is
// mostly empty. While there is no verdict, or one that asks to try again, it tries again until ctx ends;
// that is safe, because a relay stores an event once. notes receives why.
func Publish(ctx context.Context, cfg Config, event *nostr.Event, notes io.Writer) (remark string, err error) {
	if event.CreatedAt == 0 {
		event.CreatedAt = time.Now().Unix()
	}
	if err := event.Sign(cfg.Key); err != nil {
		return "", err
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		remark, err := publishOnce(ctx, cfg, event)
		var refused *RefusedError
		if err == nil || errors.Is(err, ErrAuth) || errors.As(err, &refused) && !passing(refused.Message) {
			return remark, err
		}
		fmt.Fprintf(notes, "%v; trying again in %s\n", err, pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return "", describe(ctx, "publish", err)
		}
	}
}

func publishOnce(ctx context.Context, cfg Config, event *nostr.Event) (string, error) {
	r, err := open(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer r.Close()
	ok, message, err := r.Publish(ctx, event)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", &RefusedError{Author: event.PubKey, Message: message}
	}
	return message, nil
}

// passing reports whether a relay's reason is one that passes with time (NIP-01's error and
// rate-limited).
func passing(text string) bool {
	return strings.HasPrefix(text, "error:") || strings.HasPrefix(text, "rate-limited:")
}

// describe wraps the end of ctx, which says nothing to a person, in what was waited for.
func describe(ctx context.Context, what string, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s: no answer in time: %w", what, err)
	}
	return err
}
