package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/services/apiary/internal/client"
)

type pingCmd struct {
	clientFlags `embed:""`
	Timeout     time.Duration `help:"How long it may take." default:"1m" env:"-"`
}

// run publishes an event, waits for it on a second connection, and prints how long both took.
func (c *pingCmd) run(ctx context.Context, env env) error {
	if strings.HasPrefix(c.Relay, "http") {
		return usageError{"a ping takes WebSockets: give a --relay that begins with ws"}
	}
	cfg, err := c.config(env)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	trip, err := client.Ping(ctx, cfg, env.Err)
	if err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	_, err = fmt.Fprintf(env.Out, "sent and received: OK after %s, delivered after %s\n",
		trip.OK.Round(100*time.Microsecond), trip.Live.Round(100*time.Microsecond))
	return err
}
