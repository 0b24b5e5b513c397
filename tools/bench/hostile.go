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
	"strconv"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/tools/bench/internal/attack"
	"github.com/apiary-relay/apiary/tools/internal/local"
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
	longest  time.Duration // of a round with
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
	flags.DurationVar(&h.longest, "longest", 0, "most time that a round's attackers take, whatever they have sent by then; 0 is no limit")
	flags.Float64Var(&h.rssLimit, "rss-limit", 2048, "most resident memory in MB that is no failure")
	return flags
}

// verdict is the RESULT line. Everything but the ratios decides whether the run failed. The ratios compare the p99 of
// the attacked relay with that of a second, undisturbed one on the same machine at the same time: what attackers and
// clients compute slows down both, what an attack does to a relay only the one.
type verdict struct {
	HostileMB      float64 `json:"hostile_mb"`
	Seed           uint64  `json:"seed"`
	P99Ratio       float64 `json:"p99_ratio"` // the worse of delivery and query
	DeliverRatio   float64 `json:"deliver_p99_ratio"`
	QueryRatio     float64 `json:"query_p99_ratio"`
	IdleRatio      float64 `json:"idle_p99_ratio"` // to the same relay on a machine without attackers
	AttackCores    float64 `json:"attack_cores"`   // processor time that the relay spent on attackers, by the time of the attack
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

// side is one of the two relays, with its well-behaved clients and what they saw.
type side struct {
	server         *server
	good           *goodClients
	idle, attacked observed
	spent          time.Duration // processor time while attacked
}

// sides are the relay that is attacked and the one that is not.
type sides struct {
	victim, other side
	attacked      time.Duration // how long
}

// startSides starts both relays and lets their clients work a little, and as many others as attack at a time come and go: what is
// made at first use is no leak, and how long it takes no harm that is done by attackers. close has to be called in any case.
func startSides(ctx context.Context, binary string, sockets int) (*sides, error) {
	s := &sides{}
	for i, side := range []*side{&s.victim, &s.other} {
		var err error
		if side.server, err = startServer(ctx, binary); err != nil {
			return s, err
		}
		if side.good, err = meetGood(ctx, side.server); err != nil {
			return s, fmt.Errorf("connect well-behaved clients: %w", err)
		}
		if err = side.good.crowd(ctx, side.server.url(), sockets); err != nil {
			return s, fmt.Errorf("connect a crowd: %w", err)
		}
		side.good.phase = time.Duration(i) * publishEvery / (4 * goodPairs)
	}
	return s, s.run(ctx, 2*time.Second, func(*side) *observed { return nil })
}

func (s *sides) close() error {
	var errs []error
	for _, side := range []*side{&s.victim, &s.other} {
		if side.good != nil {
			side.good.close()
		}
		if side.server != nil {
			errs = append(errs, side.server.stop())
		}
	}
	return errors.Join(errs...)
}

// run lets the clients of both work for so long.
func (s *sides) run(ctx context.Context, length time.Duration, seen func(*side) *observed) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, side := range []*side{&s.victim, &s.other} {
		group.Go(func() error { return side.good.run(ctx, length, seen(side)) })
	}
	return group.Wait()
}

// runHostile measures well-behaved clients of two relays, without and with attackers of one of them, in turns. The
// error is a crash, a loss or a leak, or that the run was not possible; slowness is none.
func runHostile(ctx context.Context, h hostile, out io.Writer) (err error) {
	if err := local.RaiseFileLimit(); err != nil {
		return err
	}
	if h.seed == 0 {
		h.seed = rand.Uint64() //nolint:gosec // printed, and meant to be repeated
	}
	fmt.Fprintf(os.Stderr, "bench: seed %d, starting two all-in-ones\n", h.seed)
	both, err := startSides(ctx, h.binary, h.sockets)
	defer func() { err = errors.Join(err, both.close()) }()
	if err != nil {
		return err
	}
	server := both.victim.server
	before, err := server.goroutines(ctx)
	if err != nil {
		return err
	}

	var rss atomicMax
	watching, stopWatching := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() { watched <- watchRSS(watching, server, &rss) }()
	tallies := map[string]attack.Tally{}
	for round := range h.rounds {
		fmt.Fprintf(os.Stderr, "bench: round %d of %d\n", round+1, h.rounds)
		if err = both.run(ctx, h.quiet, func(s *side) *observed { return &s.idle }); err != nil {
			break
		}
		if err = h.attackedRound(ctx, both, round, tallies); err != nil {
			break
		}
	}
	stopWatching()
	err = errors.Join(err, <-watched)

	res := verdict{Seed: h.seed, RSSMax: rss.value() / 1024}
	for _, side := range []*side{&both.victim, &both.other} {
		lost, doubled := side.good.faults()
		res.Lost += lost
		res.Doubled += doubled
	}
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
	victim, other := &both.victim, &both.other
	res.DeliverRatio = ratio(victim.attacked.deliver, other.attacked.deliver)
	res.QueryRatio = ratio(victim.attacked.query, other.attacked.query)
	res.P99Ratio = max(res.DeliverRatio, res.QueryRatio)
	if both.attacked > 0 {
		res.AttackCores = (victim.spent - other.spent).Seconds() / both.attacked.Seconds()
	}
	res.IdleRatio = max(ratio(victim.attacked.deliver, victim.idle.deliver), ratio(victim.attacked.query, victim.idle.query))
	return errors.Join(err, report(out, h, res, both, tallies), h.judge(res))
}

// ratio is that of the p99, 0 when one was not measured.
func ratio(attacked, undisturbed times) float64 {
	if len(attacked) == 0 || len(undisturbed) == 0 {
		return 0
	}
	return attacked.quantile(0.99) / undisturbed.quantile(0.99)
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

// account begins to count processor time, that of the servers' children included, until what it returns is called.
func (s *sides) account() (end func() error, err error) {
	began := time.Now()
	all := []*side{&s.victim, &s.other}
	before := make([]time.Duration, len(all))
	for i, side := range all {
		if before[i], err = cpuOfTree(side.server.cmd.Process.Pid); err != nil {
			return nil, err
		}
	}
	return func() error {
		for i, side := range all {
			after, err := cpuOfTree(side.server.cmd.Process.Pid)
			if err != nil {
				return err
			}
			side.spent += after - before[i]
		}
		s.attacked += time.Since(began)
		return nil
	}, nil
}

// attackedRound runs the well-behaved clients for as long as one round's share of the attack takes.
func (h *hostile) attackedRound(
	ctx context.Context, both *sides, round int, tallies map[string]attack.Tally,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	account, err := both.account()
	if err != nil {
		return err
	}
	type ended struct {
		tallies map[string]attack.Tally
		err     error
	}
	over := make(chan ended, 1)
	go func() {
		got, err := h.attack(ctx, both.victim.server, round)
		over <- ended{got, err}
	}()
	var end ended
	for done := false; !done; {
		if err := both.run(ctx, time.Second, func(s *side) *observed { return &s.attacked }); err != nil {
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
	if err := account(); err != nil {
		return errors.Join(end.err, err)
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
		Sockets: h.sockets, Lurkers: h.lurkers, Only: h.only, Longest: h.longest,
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
	cmd := exec.CommandContext(ctx, "nice", "-n", strconv.Itoa(attackNice), self, "attack", string(order)) //nolint:gosec // ourselves
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	answer, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("attack: %w", err)
	}
	var tallies map[string]attack.Tally
	return tallies, json.Unmarshal(answer, &tallies)
}

// attackNice is the priority of the attackers' process: what they compute is not to keep the relays from the processor.
const attackNice = 19

// runAttack is the process of the attackers: it carries out the order and prints what was done.
func runAttack(ctx context.Context, order string, out io.Writer) error {
	// Of processes in different sessions some systems compare the priorities of the sessions alone (sched(7), autogroup). On
	// others there is no such file.
	_ = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(attackNice)), 0)
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

func report(out io.Writer, h hostile, res verdict, both *sides, tallies map[string]attack.Tally) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "WELL-BEHAVED CLIENTS, p50 p99 in ms\tNO ATTACK\tATTACKED\tUNDISTURBED MEANWHILE\tp99 RATIO\tHOW\n")
	for _, row := range []struct {
		what string
		of   func(*observed) times
		how  string
	}{
		{"publish to deliver", func(o *observed) times { return o.deliver }, fmt.Sprintf("%d publishers, %d events/s each, one subscriber each", goodPairs, int(time.Second/publishEvery))},
		{"publish to OK", func(o *observed) times { return o.ok }, "the same events"},
		{"REQ to EOSE", func(o *observed) times { return o.query }, fmt.Sprintf("%d clients, %d queries/s each", goodReaders, int(time.Second/queryEvery))},
	} {
		idle, attacked, other := row.of(&both.victim.idle), row.of(&both.victim.attacked), row.of(&both.other.attacked)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.2f\t%s; %d, %d and %d measured\n", row.what,
			pair99(idle), pair99(attacked), pair99(other), ratio(attacked, other), row.how, len(idle), len(attacked), len(other))
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
	fmt.Fprintf(table, "processor, with Postgres\t%.2f s while attacked for %.0f s, the undisturbed one %.2f s: %.2f cores for the attackers\n",
		both.victim.spent.Seconds(), both.attacked.Seconds(), both.other.spent.Seconds(), res.AttackCores)
	return finish(out, table, res)
}

// pair99 is how the table shows latencies.
func pair99(t times) string { return fmt.Sprintf("%.1f %.1f", t.quantile(0.5), t.quantile(0.99)) }

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
