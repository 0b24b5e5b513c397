package load

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/tools/chaos/internal/client"
)

// retryPause is the wait between two tries of anything.
const retryPause = 100 * time.Millisecond

// speaker publishes over a connection that it makes anew whenever it is gone.
type speaker struct {
	load *Load
	key  *nostr.SecretKey

	mu   sync.Mutex // held while a connection is made, so that only one is
	next int        // guarded by mu; gateway to try
	conn *client.Conn
}

// publish sends an event until it is accepted, at the latest until ctx ends. An error that is not ctx's says that
// the relay does not want the event.
func (s *speaker) publish(ctx context.Context, event *nostr.Event) error {
	for {
		conn, err := s.connection(ctx)
		var verdict client.Verdict
		if err == nil {
			verdict, err = conn.Submit(ctx, event)
		}
		switch {
		case err == nil && verdict.OK:
			return nil
		case err == nil && !strings.HasPrefix(verdict.Message, "error:") && !strings.HasPrefix(verdict.Message, "rate-limited:"):
			return fmt.Errorf("the relay refuses an event of kind %d: %s", event.Kind, verdict.Message)
		}
		if pause(ctx, retryPause) != nil {
			return fmt.Errorf("an event of kind %d was never acknowledged: %w", event.Kind, errors.Join(err, ctx.Err()))
		}
	}
}

// connection returns one that has not ended, if it can be had.
func (s *speaker) connection(ctx context.Context) (*client.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		select {
		case <-s.conn.Gone():
			s.conn.Close()
			s.conn = nil
		default:
			return s.conn, nil
		}
	}
	gateway := s.load.cfg.Gateways[s.next%len(s.load.cfg.Gateways)]
	s.next++
	conn, err := s.load.dial(ctx, gateway, s.key)
	if err != nil {
		return nil, err
	}
	s.conn = conn
	return conn, nil
}

func (s *speaker) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

// pause waits, or returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
