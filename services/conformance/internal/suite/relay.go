package suite

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/apiary-relay/apiary/services/conformance/internal/client"
)

// Options are how a run treats the relay.
type Options struct {
	// Step is how long the relay may take for one answer.
	Step time.Duration
	// Quiet is how long nothing must come for it to count as nothing.
	Quiet time.Duration
	// Idle is how long a quiet subscription is left alone to see whether it stays open.
	Idle time.Duration
	// Parallel is how many cases run at a time.
	Parallel int
	// Claims are NIPs that count as claimed besides those that the relay lists.
	Claims []int
	// Only are the prefixes of the cases' names to run; none runs all.
	Only []string
	// Seed makes the random cases repeatable.
	Seed uint64
	// Fuzz is how many random filters are asked for.
	Fuzz int
}

// Relay is what is known of the relay before the cases run. It is not changed after Probe.
type Relay struct {
	// URL is where the relay is.
	URL string
	// URLs are all the places where it is; a relay of several front ends has one for each, and connections
	// take turns. URL is the first.
	URLs []string
	// Info is its NIP-11 document, nil if it has none.
	Info *client.Info
	// Greets is set when the relay sends a NIP-42 challenge by itself.
	Greets bool
	// Locked is set when a stranger may not even subscribe.
	Locked bool

	http *http.Client
	turn atomic.Uint64
}

// next returns the URL for the next connection.
func (r *Relay) next() string { return r.URLs[r.turn.Add(1)%uint64(len(r.URLs))] }

// HTTP is the client for requests to the relay.
func (r *Relay) HTTP() *http.Client { return r.http }

// Limits are the limitations that the relay states; all nil if it states none.
func (r *Relay) Limits() client.Limitation {
	if r.Info == nil {
		return client.Limitation{}
	}
	return r.Info.Limitation
}

// claims reports whether the relay claims all the NIPs.
func (r *Relay) claims(o *Options, nips []int) (missing int, ok bool) {
	for _, nip := range nips {
		if !r.Info.Claims(nip) && !slices.Contains(o.Claims, nip) {
			return nip, false
		}
	}
	return 0, true
}

// Probe asks the relay at one or more URLs who it is: its NIP-11 document, and whether it wants authentication.
func Probe(ctx context.Context, urls []string, o *Options) (*Relay, error) {
	// Each connection of a case is one of its own; the client's pool would only keep sockets open.
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	url := urls[0]
	r := &Relay{URL: url, URLs: urls, http: &http.Client{Transport: transport, Timeout: max(o.Step, 10*time.Second)}}
	var err error
	if r.Info, err = client.FetchInfo(ctx, r.http, url); err != nil {
		return nil, fmt.Errorf("ask for the NIP-11 document: %w", err)
	}
	step, cancel := context.WithTimeout(ctx, o.Step)
	defer cancel()
	c, err := client.Dial(step, r.http, url)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer c.Close()
	const sub = "probe"
	if err := c.SendJSON(step, "REQ", sub, map[string]any{"kinds": []int{1}, "limit": 1}); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	answer, _, err := c.Await(step, 0, func(f *client.Frame) bool {
		return f.Sub == sub && (f.Label == client.LabelEOSE || f.Label == client.LabelClosed)
	})
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	r.Locked = err != nil || answer.Label == client.LabelClosed
	r.Greets, err = r.greets(ctx, o)
	return r, err
}

// greets reports whether a challenge comes before the client has said anything.
func (r *Relay) greets(ctx context.Context, o *Options) (bool, error) {
	step, cancel := context.WithTimeout(ctx, o.Step)
	defer cancel()
	c, err := client.Dial(step, r.http, r.URL)
	if err != nil {
		return false, fmt.Errorf("connect: %w", err)
	}
	defer c.Close()
	wait := o.Step
	if !r.Locked {
		wait = o.Quiet
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, _, err = c.Await(waiting, 0, func(f *client.Frame) bool { return f.Label == client.LabelAuth })
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, client.ErrGone) {
		return false, err
	}
	return err == nil, nil
}
