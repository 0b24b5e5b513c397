package main

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

// idler is a client that does nothing but answer pings.
type idler struct {
	*client
	eose  chan struct{} // has a token for each EOSE
	ended chan struct{} // closed when the connection has ended
	err   error         // why; to be read after ended
}

// idle reads until the connection ends.
func (i *idler) idle(ctx context.Context) {
	defer close(i.ended)
	for {
		frame, err := i.read(ctx)
		switch {
		case err != nil:
			i.err = err
			return
		case frame.Label == wire.LabelEOSE:
			i.eose <- struct{}{}
		default:
			i.err = fmt.Errorf("unexpected %s %s", frame.Label, frame.Message)
			return
		}
	}
}

// openAll opens n authenticated connections, which end with ctx or with closeAll. With an error it returns those that
// were opened.
func openAll(ctx context.Context, url string, n int) ([]*idler, error) {
	clients := make([]*idler, n)
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for i := range clients {
		group.Go(func() error {
			c, err := connect(gctx, url)
			if err != nil {
				return err
			}
			clients[i] = &idler{client: c, eose: make(chan struct{}, 1), ended: make(chan struct{})}
			go clients[i].idle(ctx)
			return nil
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(clients, func(c *idler) bool { return c == nil }), err
}

// subscribeAll opens one subscription on each connection, as a client does that waits for answers to one of its notes.
func subscribeAll(ctx context.Context, clients []*idler) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for i, c := range clients {
		group.Go(func() error {
			filter := nostr.Filter{Kinds: []nostr.Kind{nostr.KindText}, Tags: []nostr.TagCondition{{Name: 'e', Values: []string{fmt.Sprintf("%064x", i)}}}}
			if err := c.write(ctx, wire.AppendReq(nil, "live", filter)); err != nil {
				return err
			}
			select {
			case <-c.eose:
				return nil
			case <-c.ended:
				return c.err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	return group.Wait()
}

// closeAll ends the connections.
func closeAll(clients []*idler) {
	for _, c := range clients {
		c.close()
	}
	for _, c := range clients {
		<-c.ended
	}
}
