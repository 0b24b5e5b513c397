package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"github.com/apiary-relay/apiary/tools/chaos/internal/checker"
	"github.com/apiary-relay/apiary/tools/chaos/internal/load"
	"github.com/apiary-relay/apiary/tools/chaos/internal/scenario"
	"github.com/apiary-relay/apiary/tools/internal/local"
)

// watched is the name of what is behind the URL: clients do not see which gateway a balancer gave them.
const watched = "relay"

// watchOptions say which relay is used, and how.
type watchOptions struct {
	options
	address, host string
	load          scenario.Load
}

// parseWatch reads the arguments of chaos watch. A channel's state is signed by the relay's key, and a relay may have none;
// so there are private channels only on request.
func parseWatch(args []string, help io.Writer) (watchOptions, error) {
	o := watchOptions{options: options{settling: settling}, load: scenario.Defaults()}
	o.load.Rate, o.load.Private = 20, 0
	flags := flag.NewFlagSet("chaos watch", flag.ContinueOnError)
	flags.SetOutput(help)
	relay := flags.String("url", "", "the relay, ws://host[:port]; its community must be open, and the relay yours to load")
	flags.StringVar(&o.address, "connect", "", "address to connect to, host:port (default: the URL's)")
	flags.IntVar(&o.seconds, "seconds", 60, "how long to publish")
	flags.IntVar(&o.load.Subscribers, "subscribers", 300, "number of subscribers")
	flags.IntVar(&o.load.Private, "private", o.load.Private, "number of private channels, whose members come and go")
	flags.IntVar(&o.load.Rate, "rate", o.load.Rate, "events a second, at most five for each channel")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	u, err := url.Parse(*relay)
	if err != nil || u.Scheme != "ws" || u.Hostname() == "" || flags.NArg() > 0 {
		return o, fmt.Errorf("say which relay: chaos watch --url ws://host, not %q", append([]string{*relay}, flags.Args()...))
	}
	if o.host = u.Host; o.address == "" {
		if o.address = u.Host; u.Port() == "" {
			o.address = net.JoinHostPort(u.Hostname(), "80")
		}
	}
	if o.seconds < 1 || o.seconds > int(time.Hour/time.Second) {
		return o, fmt.Errorf("a run takes 1 to 3600 seconds, not %d", o.seconds)
	}
	return o, o.load.Check()
}

// watch uses a relay that runs already, while somebody else replaces and scales its parts, and judges what the clients got.
func watch(ctx context.Context, o watchOptions, out io.Writer) error {
	if err := local.RaiseFileLimit(); err != nil {
		return err
	}
	log, began := checker.New(), time.Now()
	clients, err := load.New(load.Config{
		Gateways: []load.Gateway{{Name: watched, Address: o.address}}, Host: o.host, Load: o.load, Restarts: true, Log: log, Note: o.note,
	})
	if err != nil {
		return err
	}
	defer clients.Close()
	if err := clients.Prepare(ctx); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	fmt.Fprintf(out, "%d subscribers listen; publishing for %d s\n", o.load.Subscribers, o.seconds)
	using, stop := context.WithTimeout(ctx, time.Duration(o.seconds)*time.Second)
	defer stop()
	if err := clients.Use(using); err != nil {
		return err
	}
	settle(ctx, log, o.settling)
	clients.Close()
	report := log.Check()
	fmt.Fprintf(out, "connections that ended with 1012 (service restart) and were made again: %d; events that never had an OK: %d\n",
		report.Restarts, clients.Abandoned())
	if report.LongestOf != "" {
		fmt.Fprintf(out, "the longest pause, in time since %s: %s\n", began.UTC().Format(time.TimeOnly), report.LongestOf)
	}
	t := &table{out: out}
	t.add("watch", report)
	if err := t.finish(); err != nil {
		return err
	}
	if !t.right() {
		return errWrong
	}
	return ctx.Err()
}
