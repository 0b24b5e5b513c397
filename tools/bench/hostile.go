package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/apiary-relay/apiary/tools/bench/internal/attack"
)

// hostile are the sizes of a run against attackers.
type hostile struct {
	binary   string
	megabyte int64 // bytes to attack with, in units of 1,000,000
	seed     uint64
	sockets  int
	lurkers  int
	rounds   int           // each without and then with attackers
	quiet    time.Duration // of a round without
	rssLimit float64       // MB
	only     string        // in the name of the attacks
	// separately runs the attackers as a process of low priority, so that what they compute themselves is not
	// taken for what they do to the relay.
	separately bool
}

func (h *hostile) flags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.StringVar(&h.binary, "apiary", "bin/apiary", "the all-in-one's binary")
	flags.Int64Var(&h.megabyte, "mb", 200, "megabytes that the attackers send")
	flags.Uint64Var(&h.seed, "seed", 0, "seed of what they send; 0 chooses one")
	flags.IntVar(&h.sockets, "sockets", 32, "connections that attack at a time")
	flags.IntVar(&h.lurkers, "lurkers", 8, "further ones that send a byte at a time or never read")
	flags.IntVar(&h.rounds, "rounds", 4, "rounds without attackers, and as many with them, in turns")
	flags.StringVar(&h.only, "only", "", "use only the attacks with this in their name")
	flags.DurationVar(&h.quiet, "quiet", 15*time.Second, "length of a round without")
	flags.Float64Var(&h.rssLimit, "rss-limit", 2048, "most resident memory in MB that is no failure")
	return flags
}

// verdict is the RESULT line. Everything but the ratios decides whether the run failed.
type verdict struct {
	HostileMB      float64 `json:"hostile_mb"`
	Seed           uint64  `json:"seed"`
	P99Ratio       float64 `json:"p99_ratio"` // the worse of delivery and query
	DeliverRatio   float64 `json:"deliver_p99_ratio"`
	QueryRatio     float64 `json:"query_p99_ratio"`
	RSSMax         float64 `json:"rss_max_mb"`
	Crashed        int     `json:"crashed"`
	Lost           int     `json:"lost"`
	Doubled        int     `json:"doubled"`
	GoroutinesLeft int     `json:"goroutines_left"`
}

// The goroutines that may be there after an attack besides those before it, and how long the relay has to part with
// its attackers: it waits for slow ones, and for their queries.
const (
	spareGoroutines = 32
	partingTime     = 90 * time.Second
)

// runHostile measures well-behaved clients of one relay without and with attackers, in turns. The error is a crash,
// a loss or a leak, or that the run was not possible; slowness is none.
func runHostile(ctx context.Context, h hostile, out io.Writer) (err error) {
	if err := raiseFileLimit(); err != nil {
		return err
	}
	if h.seed == 0 {
		h.seed = rand.Uint64() //nolint:gosec // printed, and meant to be repeated
	}
	fmt.Fprintf(os.Stderr, "bench: seed %d, starting the all-in-one\n", h.seed)
	server, err := startServer(ctx, h.binary)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()

	good, err := meetGood(ctx, server)
	if err != nil {
		return fmt.Errorf("connect well-behaved clients: %w", err)
	}
	defer good.close()
	if err := good.run(ctx, 2*time.Second, nil); err != nil { // what is made at first use is no leak
		return err
	}
	before, err := server.goroutines(ctx)
	if err != nil {
		return err
	}

	var rss atomicMax
	watching, stopWatching := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() { watched <- watchRSS(watching, server, &rss) }()
	alone, attacked := &observed{}, &observed{}
	tallies := map[string]attack.Tally{}
	for round := range h.rounds {
		fmt.Fprintf(os.Stderr, "bench: round %d of %d\n", round+1, h.rounds)
		if err = good.run(ctx, h.quiet, alone); err != nil {
			break
		}
		if err = h.attackedRound(ctx, server, good, attacked, round, tallies); err != nil {
			break
		}
	}
	stopWatching()
	err = errors.Join(err, <-watched)

	res := verdict{Seed: h.seed, RSSMax: rss.value() / 1024}
	res.Lost, res.Doubled = good.faults()
	for _, t := range tallies {
		res.HostileMB += float64(t.Bytes) / 1e6
	}
	if server.alive() {
		left, countErr := server.goroutinesAfter(ctx, before+spareGoroutines, partingTime)
		err = errors.Join(err, countErr)
		res.GoroutinesLeft = max(left-before-spareGoroutines, 0)
	} else {
		res.Crashed = 1
		err = errors.Join(err, errors.New("the relay ended"))
	}
	res.DeliverRatio = ratio(attacked.deliver, alone.deliver)
	res.QueryRatio = ratio(attacked.query, alone.query)
	res.P99Ratio = max(res.DeliverRatio, res.QueryRatio)
	return errors.Join(err, report(out, h, res, alone, attacked, tallies), h.judge(res))
}

// ratio is that of the p99, 0 when one was not measured.
func ratio(attacked, alone times) float64 {
	if len(attacked) == 0 || len(alone) == 0 {
		return 0
	}
	return attacked.quantile(0.99) / alone.quantile(0.99)
}

// judge says what of a result is a failure.
func (h *hostile) judge(res verdict) error {
	var errs []error
	if res.Lost+res.Doubled > 0 {
		errs = append(errs, fmt.Errorf("%d events of well-behaved clients were lost and %d doubled", res.Lost, res.Doubled))
	}
	if res.GoroutinesLeft > 0 {
		errs = append(errs, fmt.Errorf("%d goroutines are left after the attack", res.GoroutinesLeft))
	}
	if res.RSSMax > h.rssLimit {
		errs = append(errs, fmt.Errorf("the relay took %.0f MB of memory, of %.0f", res.RSSMax, h.rssLimit))
	}
	return errors.Join(errs...)
}

// attackedRound runs the well-behaved clients for as long as one round's share of the attack takes.
func (h *hostile) attackedRound(
	ctx context.Context, server *server, good *goodClients, seen *observed, round int, tallies map[string]attack.Tally,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type ended struct {
		tallies map[string]attack.Tally
		err     error
	}
	over := make(chan ended, 1)
	go func() {
		got, err := h.attack(ctx, server, round)
		over <- ended{got, err}
	}()
	var end ended
	for done := false; !done; {
		if err := good.run(ctx, time.Second, seen); err != nil {
			cancel()
			<-over
			return err
		}
		select {
		case end = <-over:
			done = true
		default:
		}
	}
	for name, t := range end.tallies {
		sum := tallies[name]
		tallies[name] = attack.Tally{Bytes: sum.Bytes + t.Bytes, Sessions: sum.Sessions + t.Sessions}
	}
	return end.err
}

// attack attacks once, in this process or in one of its own.
func (h *hostile) attack(ctx context.Context, server *server, round int) (map[string]attack.Tally, error) {
	cfg := attack.Config{
		Addr: server.addr, Seed: h.seed + uint64(round), Bytes: h.megabyte * 1_000_000 / int64(h.rounds),
		Sockets: h.sockets, Lurkers: h.lurkers, Only: h.only,
	}
	if !h.separately {
		return attack.Run(ctx, cfg)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	order, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "nice", "-n", "19", self, "attack", string(order)) //nolint:gosec // ourselves
	cmd.Stderr = os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("attack: %w", err)
	}
	var tallies map[string]attack.Tally
	return tallies, json.Unmarshal(answer, &tallies)
}

// runAttack is the process of the attackers: it carries out the order and prints what was done.
func runAttack(ctx context.Context, order string, out io.Writer) error {
	var cfg attack.Config
	if err := json.Unmarshal([]byte(order), &cfg); err != nil {
		return err
	}
	tallies, err := attack.Run(ctx, cfg)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(tallies)
}

func report(out io.Writer, h hostile, res verdict, alone, attacked *observed, tallies map[string]attack.Tally) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "WELL-BEHAVED CLIENTS\tALONE p50, p99\tATTACKED p50, p99\tp99 RATIO\tHOW\n")
	for _, row := range []struct {
		what            string
		alone, attacked times
		how             string
	}{
		{"publish to deliver", alone.deliver, attacked.deliver, fmt.Sprintf("%d publishers, %d events/s each, one subscriber each", goodPairs, int(time.Second/publishEvery))},
		{"publish to OK", alone.ok, attacked.ok, "the same events"},
		{"REQ to EOSE", alone.query, attacked.query, fmt.Sprintf("%d clients, %d queries/s each", goodReaders, int(time.Second/queryEvery))},
	} {
		fmt.Fprintf(table, "%s\t%.1f, %.1f ms\t%.1f, %.1f ms\t%.2f\t%s; %d and %d measured\n", row.what,
			row.alone.quantile(0.5), row.alone.quantile(0.99), row.attacked.quantile(0.5), row.attacked.quantile(0.99),
			ratio(row.attacked, row.alone), row.how, len(row.alone), len(row.attacked))
	}
	fmt.Fprintf(table, "\nATTACK\tSENT\tCONNECTIONS\n")
	names := make([]string, 0, len(tallies))
	for name := range tallies {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(table, "%s\t%.2f MB\t%d\n", name, float64(tallies[name].Bytes)/1e6, tallies[name].Sessions)
	}
	fmt.Fprintf(table, "\nRELAY\n")
	fmt.Fprintf(table, "resident memory\t%.0f MB at most, %.0f allowed\n", res.RSSMax, h.rssLimit)
	fmt.Fprintf(table, "lost, doubled\t%d, %d\n", res.Lost, res.Doubled)
	if err := table.Flush(); err != nil {
		return err
	}
	line, err := json.Marshal(res)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "RESULT %s\n", line)
	return err
}

// atomicMax is the largest of the values that it was given.
type atomicMax struct{ kib atomic.Int64 }

func (m *atomicMax) add(v float64)  { m.kib.Store(max(m.kib.Load(), int64(v))) }
func (m *atomicMax) value() float64 { return float64(m.kib.Load()) }

// watchRSS reads the relay's memory ten times a second until ctx ends. The error is that there is no relay any more.
func watchRSS(ctx context.Context, s *server, rss *atomicMax) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		kib, err := s.rssKiB()
		if err != nil {
			return err
		}
		rss.add(kib)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
