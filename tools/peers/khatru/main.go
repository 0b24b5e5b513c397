// Command khatru is a relay of the khatru library that stores nothing and passes everything on.
//
//	khatru HOST:PORT
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: khatru HOST:PORT")
		os.Exit(2)
	}
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "khatru:", err)
		os.Exit(1)
	}
}

func serve(addr string) error {
	relay := khatru.NewRelay()
	relay.Log = log.New(io.Discard, "", 0)
	relay.StoreEvent = append(relay.StoreEvent, func(context.Context, *nostr.Event) error { return nil })
	relay.QueryEvents = append(relay.QueryEvents, func(context.Context, nostr.Filter) (chan *nostr.Event, error) {
		none := make(chan *nostr.Event)
		close(none)
		return none, nil
	})
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: relay, ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Println("ready")
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}
