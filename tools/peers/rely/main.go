// Command rely is a relay of the rely library that stores nothing and passes everything on.
//
//	rely HOST:PORT
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/nbd-wtf/go-nostr"
	"github.com/pippellia-btc/rely"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: rely HOST:PORT")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	relay := rely.NewRelay(rely.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	relay.On.Event = func(rely.Client, *nostr.Event) error { return nil }
	relay.On.Req = func(context.Context, rely.Client, nostr.Filters) ([]nostr.Event, error) { return nil, nil }
	if err := relay.StartAndServe(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "rely:", err)
		os.Exit(1)
	}
}
