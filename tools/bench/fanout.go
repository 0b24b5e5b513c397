package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/tools/bench/internal/crowd"
	"github.com/apiary-relay/apiary/tools/internal/local"
)

// fanout are the sizes of a run that compares how servers deliver.
type fanout struct {
	binary  string
	peers   string        // directory of the other servers' binaries
	only    string        // servers, with commas; "" for none
	shape   string        // in the name of the shapes
	nodes   nodes         // of a cluster with more fan-out nodes than one
	profile string        // directory for profiles; "" for none
	length  time.Duration // of a flood
	most    int           // messages of a flood
	perSec  float64       // deliveries a second that all servers are paced at
	outside int           // deliveries outstanding in a flood
	pin     bool
	crowds  []shapeOfCrowd
}

// shapeOfCrowd is how many connections subscribe, each to so many topics.
type shapeOfCrowd struct {
	name                      string
	subscribers, topics, each int
}

// crowds are the shapes of the full run; the first is the one of the RESULT line.
var crowds = []shapeOfCrowd{
	{"200 on one topic", 200, 1, 1},
	{"2,000 on one topic", 2_000, 1, 1},
	{"2,000 topics, 10 on each", 2_000, 2_000, 10},
}

func (f *fanout) flags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.StringVar(&f.binary, "apiary", "bin/apiary", "the all-in-one's binary")
	flags.StringVar(&f.peers, "peers", ".bin/peers", "where khatru, rely and centrifugo are")
	flags.StringVar(&f.only, "only", "apiary,khatru,rely,centrifugo", "the servers to measure; empty for none")
	flags.StringVar(&f.shape, "shape", "", "measure only crowds with this in their name")
	flags.DurationVar(&f.length, "length", 4*time.Second, "length of a flood")
	flags.IntVar(&f.most, "most", 40_000, "most messages of a flood; they are signed beforehand")
	flags.Float64Var(&f.perSec, "pace", 20_000, "deliveries a second that all are paced at, besides half of what they can do")
	flags.IntVar(&f.outside, "outstanding", 40_000, "deliveries that may be under way in a flood")
	flags.StringVar(&f.profile, "profile", "", "directory to write processor profiles of our processes to")
	f.nodes.flags(flags)
	flags.BoolVar(&f.pin, "pin", true, "give the server one processor and the clients another")
	return flags
}

const fanoutPublishers = 4

// figures are what the RESULT line has of a server. Latencies are in milliseconds, at half of the deliveries a second
// that it can do, and at the pace that is the same for all.
type figures struct {
	PerSecond float64 `json:"deliveries_per_s"`
	CPU       float64 `json:"cpu_us"` // of the server's processes, its database included, for a delivery
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	PacedP50  float64 `json:"paced_p50_ms"`
	PacedP99  float64 `json:"paced_p99_ms"`
	Lost      int     `json:"lost"`
	Twice     int     `json:"twice"`
	Cut       int     `json:"cut"` // subscribers that the server has closed the connection of, of whose deliveries the rest is lost
}

// runFanout measures all servers with all crowds. The error is that one of ours was not delivered, or twice, or that the
// run was not possible; what others lose is their affair, and slowness is none.
func runFanout(ctx context.Context, f fanout, out io.Writer) error {
	if err := local.RaiseFileLimit(); err != nil {
		return err
	}
	if f.pin && runtime.NumCPU() > 1 {
		return errors.New("clients have more than one processor: start this with taskset --cpu-list 1, as `make bench-fanout` does, or use -pin=false")
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	result := map[string]any{}
	var faults []error
	servers := list(f.only)
	if len(servers) > 0 {
		fmt.Fprintln(table, "SERVER\tCROWD\tDELIVERIES/S\tCPU\tAT HALF: p50 p99\tAT THE PACE: p50 p99\tLOST, TWICE\tCUT OFF")
	}
	for _, shape := range f.crowds {
		if !strings.Contains(shape.name, f.shape) {
			continue
		}
		for _, name := range servers {
			fmt.Fprintf(os.Stderr, "bench: %s, %s\n", name, shape.name)
			cfg := crowd.Config{Subscribers: shape.subscribers, Topics: shape.topics, Each: shape.each, Publishers: fanoutPublishers}
			got, err := f.measure(ctx, name, cfg)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", name, shape.name, err)
			}
			fmt.Fprintf(table, "%s\t%s\t%.0f\t%.2f µs\t%.1f %.1f ms\t%.1f %.1f ms\t%d, %d\t%d\n", name, shape.name,
				got.PerSecond, got.CPU, got.P50, got.P99, got.PacedP50, got.PacedP99, got.Lost, got.Twice, got.Cut)
			if name == "apiary" && got.Lost+got.Twice+got.Cut > 0 {
				faults = append(faults, fmt.Errorf("%s: %d deliveries were lost, %d came twice, %d subscribers were cut off", shape.name, got.Lost, got.Twice, got.Cut))
			}
			if _, known := result[name]; !known {
				result[name] = got
			}
		}
	}
	if f.nodes.counts != "" {
		if len(servers) > 0 {
			fmt.Fprintln(table) // ends the columns
		}
		all, err := f.measureNodes(ctx, table)
		if err != nil {
			return err
		}
		result["nodes"] = all
		for _, got := range all {
			if got.Lost+got.Twice > 0 {
				faults = append(faults, fmt.Errorf("%d fan-out nodes: %d deliveries were lost and %d came twice", got.Fanouts, got.Lost, got.Twice))
			}
		}
	}
	if err := finish(out, table, result); err != nil {
		return err
	}
	return errors.Join(faults...)
}

// list are the parts of a flag with commas.
func list(flag string) []string {
	return strings.FieldsFunc(flag, func(r rune) bool { return r == ',' })
}

// running is a server that was started.
type running struct {
	pid  int
	ours []watched // to be profiled
	stop func() error
}

// start starts a server by its name and says how to speak to it.
func (f *fanout) start(ctx context.Context, name string, cfg *crowd.Config) (*running, error) {
	core := -1
	if f.pin {
		core = 0
	}
	if name == "apiary" {
		s, err := startServerOn(ctx, core, f.binary, unlimited...)
		if err != nil {
			return nil, err
		}
		cfg.Addr, cfg.Dialect = s.addr, crowd.Nostr{Auth: true}
		pid := s.cmd.Process.Pid
		return &running{pid, []watched{{name, pid, s.admin}}, s.stop}, nil
	}
	addr, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	cfg.Addr, cfg.Dialect = addr, crowd.Nostr{}
	binary, args, clean := filepath.Join(f.peers, name), []string{addr}, func() error { return nil }
	if name == "centrifugo" {
		config, err := centrifugoConfig(addr)
		if err != nil {
			return nil, err
		}
		clean = func() error { return os.Remove(config) }
		cfg.Path, cfg.Dialect, args = "/connection/websocket", crowd.Centrifugo{}, []string{"--config", config}
	}
	if _, err := exec.LookPath(binary); err != nil {
		return nil, fmt.Errorf("%w: `make peers` gets it", err)
	}
	p, err := startProcess(ctx, core, addr, binary, args...)
	if err != nil {
		return nil, errors.Join(err, clean())
	}
	return &running{p.cmd.Process.Pid, nil, func() error { return errors.Join(p.stop(), clean()) }}, nil
}

// centrifugoConfig writes a configuration that lets everybody do everything, without history, as live delivery is
// what is compared.
func centrifugoConfig(addr string) (path string, err error) {
	host, port, _ := strings.Cut(addr, ":")
	config, err := json.Marshal(map[string]any{
		"http_server": map[string]any{"address": host, "port": port},
		"log":         map[string]any{"level": "error"},
		"client": map[string]any{
			"insecure": true, "allowed_origins": []string{"*"}, "channel_limit": 1024, "queue_max_size": 64 << 20,
		},
		"channel": map[string]any{"without_namespace": map[string]any{
			"allow_subscribe_for_client": true, "allow_publish_for_client": true,
		}},
	})
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp("", "apiary-bench-*.json")
	if err != nil {
		return "", err
	}
	_, err = file.Write(config)
	return file.Name(), errors.Join(err, file.Close())
}

// measure floods one server, and then paces it.
func (f *fanout) measure(ctx context.Context, name string, cfg crowd.Config) (got figures, err error) {
	server, err := f.start(ctx, name, &cfg)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	people, err := crowd.Meet(ctx, cfg)
	if err != nil {
		return got, err
	}
	defer people.Close()
	fan := float64(cfg.Subscribers*cfg.Each) / float64(cfg.Topics)

	if _, err := people.Flood(ctx, f.length/4, f.outside, f.most/4); err != nil { // to warm up
		return got, err
	}
	var used []time.Duration
	flood, err := f.observe(ctx, people, server.ours, func() error {
		cpu, err := cpuOfTree(server.pid)
		used = append(used, cpu)
		return err
	}, func() (crowd.Result, error) { return people.Flood(ctx, f.length, f.outside, f.most) })
	if err != nil {
		return got, err
	}
	got.Lost, got.Twice, got.Cut = flood.Lost, flood.Twice, people.Cut()
	if flood.Deliveries == 0 {
		return got, nil // nobody is left to be measured
	}
	got.PerSecond = float64(flood.Deliveries) / flood.Took.Seconds()
	got.CPU = float64((used[1] - used[0]).Microseconds()) / float64(flood.Deliveries)

	paced := func(deliveries float64) (p50, p99 float64, err error) {
		perSecond := deliveries / fan
		res, err := people.Paced(ctx, int(math.Ceil(perSecond*f.length.Seconds())), perSecond)
		if err != nil || len(res.Latencies) == 0 {
			return 0, 0, err
		}
		got.Lost += res.Lost
		got.Twice += res.Twice
		slices.Sort(res.Latencies)
		at := func(q float64) float64 {
			return float64(res.Latencies[int(q*float64(len(res.Latencies)-1))].Microseconds()) / 1000
		}
		return at(0.50), at(0.99), nil
	}
	if got.P50, got.P99, err = paced(got.PerSecond / 2); err != nil {
		return got, err
	}
	got.PacedP50, got.PacedP99, err = paced(f.perSec)
	got.Cut = people.Cut()
	return got, err
}

// observe runs a round and has processes profiled meanwhile, if anybody wants to know. look is called right before the
// first message and after the last.
func (f *fanout) observe(
	ctx context.Context, people *crowd.Crowd, ours []watched, look func() error, round func() (crowd.Result, error),
) (crowd.Result, error) {
	profiles, pctx := errgroup.WithContext(ctx)
	people.Began = func() error {
		if f.profile != "" {
			if err := os.MkdirAll(f.profile, 0o755); err != nil { //nolint:gosec // where the user wants them
				return err
			}
			query := fmt.Sprintf("?seconds=%d", max(1, int(f.length.Seconds())))
			for _, p := range ours {
				profiles.Go(func() error { return p.profile(pctx, f.profile, "profile", query) })
			}
		}
		return look()
	}
	defer func() { people.Began = nil }()
	res, err := round()
	if err != nil {
		return res, errors.Join(err, profiles.Wait())
	}
	return res, errors.Join(look(), profiles.Wait())
}
