// Package conformance holds a relay to the NIPs: it runs cases over the relay's own protocol, against any
// URL, and says which the relay passes, which it fails with what was expected and seen, and which do not
// concern it, because it does not claim them.
//
// It is a client and nothing else: it must never look into a relay, and knows none in particular. Package
// client speaks the protocol, model is the naive relay that random cases compare with, suite runs cases, and
// cases holds what the NIPs say.
//
// Run starts a goroutine for each case that runs and for each connection, and waits for all of them.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/services/conformance/internal/cases"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// Config is how a run treats the relay.
type Config struct {
	Step     time.Duration `help:"Longest wait for one answer of the relay." default:"2s"`
	Quiet    time.Duration `help:"How long nothing must come for it to count as nothing." default:"200ms"`
	Idle     time.Duration `help:"How long a quiet subscription is left alone to see whether it stays open." default:"6s"`
	Parallel int           `help:"Cases that run at a time." default:"8"`
	Claims   []int         `help:"NIPs that count as claimed besides those that the relay lists." placeholder:"N"`
	Only     []string      `help:"Run only the cases whose names begin so, like NIP-09/ or NIP-01/race." placeholder:"PREFIX"`
	Seed     uint64        `help:"Makes the random cases repeatable; 0 takes another one each time."`
	Fuzz     int           `help:"Random filters in each differential case." default:"100"`
	Verbose  bool          `help:"Print each case as it ends." short:"v"`
}

// DefaultConfig returns the defaults of the tags.
func DefaultConfig() Config {
	return Config{Step: 2 * time.Second, Quiet: 200 * time.Millisecond, Idle: 6 * time.Second, Parallel: 8, Fuzz: 100}
}

// Validate reports everything that cannot work.
func (c *Config) Validate() error {
	var errs []error
	for name, value := range map[string]int64{
		"step": int64(c.Step), "quiet": int64(c.Quiet), "parallel": int64(c.Parallel), "fuzz": int64(c.Fuzz),
	} {
		if value <= 0 {
			errs = append(errs, fmt.Errorf("%s must be positive", name))
		}
	}
	return errors.Join(errs...)
}

// ErrFailed is returned when the relay failed a case.
var ErrFailed = errors.New("the relay failed cases")

// Report is what a run found.
type Report = suite.Report

// Outcome is how a case ended.
type Outcome = suite.Outcome

// The outcomes of a case.
const (
	Passed     = suite.Passed
	Failed     = suite.Failed
	NotClaimed = suite.NotClaimed
)

// Run runs the cases against a relay and writes the report to out, its last line RESULT. A relay has one or
// more ws or wss URLs; over several, connections take turns, so that what one front end accepts is asked for
// at another. The error is ErrFailed if a case failed, and another one if the relay could not be asked at
// all.
func Run(ctx context.Context, urls []string, cfg Config, out io.Writer) (Report, error) {
	if len(urls) == 0 {
		return nil, errors.New("there is no URL")
	}
	for _, one := range urls {
		if u, err := url.Parse(one); err != nil || u.Host == "" || (u.Scheme != "ws" && u.Scheme != "wss") {
			return nil, fmt.Errorf("%q is not the URL of a relay: it begins with ws:// or wss://", one)
		}
	}
	opts := suite.Options{
		Step: cfg.Step, Quiet: cfg.Quiet, Idle: cfg.Idle, Parallel: cfg.Parallel,
		Claims: cfg.Claims, Only: cfg.Only, Seed: cfg.Seed, Fuzz: cfg.Fuzz,
	}
	if opts.Seed == 0 {
		opts.Seed = uint64(time.Now().UnixNano())
	}
	r, err := suite.Probe(ctx, urls, &opts)
	if err != nil {
		return nil, fmt.Errorf("ask the relay at %s: %w", urls[0], err)
	}
	var progress func(suite.Result)
	if cfg.Verbose {
		progress = func(r suite.Result) { fmt.Fprintf(out, "%-12s %s\n", r.Outcome, r.Case.Name()) }
	}
	report := suite.Run(ctx, r, cases.All(), opts, progress) //nolint:contextcheck // a case has its context in its T
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	fmt.Fprintf(out, "%s, seed %d\n", strings.Join(urls, " and "), opts.Seed)
	if r.Info != nil {
		fmt.Fprintf(out, "claims the NIPs %v\n", r.Info.NIPs)
	}
	fmt.Fprintln(out)
	if err := report.Print(out); err != nil {
		return report, err
	}
	if report.Count(suite.Failed) > 0 {
		return report, ErrFailed
	}
	return report, nil
}
