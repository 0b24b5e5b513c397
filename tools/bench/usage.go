package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// watched is a process of ours whose memory is measured.
type watched struct {
	name  string
	pid   int
	admin string // address of its admin listener
}

// usage is what a process has in use, or each connection of it: memory in KiB.
type usage struct {
	rss        float64 // resident, by the kernel
	heap       float64 // live objects, by Go
	stacks     float64 // of goroutines, by Go
	goroutines float64
}

func (u *usage) add(v usage) {
	u.rss += v.rss
	u.heap += v.heap
	u.stacks += v.stacks
	u.goroutines += v.goroutines
}

// since is the growth for each of n connections.
func (u usage) since(before usage, n int) usage {
	each := func(after, before float64) float64 { return (after - before) / float64(n) }
	return usage{
		rss: each(u.rss, before.rss), heap: each(u.heap, before.heap),
		stacks: each(u.stacks, before.stacks), goroutines: each(u.goroutines, before.goroutines),
	}
}

const (
	// calm is how much of a resident set may come or go between two looks that is no change.
	calm = 0.001
	// calmLooks is after how many looks without a change a process has settled, lookEvery apart.
	calmLooks = 4
	lookEvery = time.Second
	// patience is how long to wait for that.
	patience = 2 * time.Minute
)

// settled has the processes collect their garbage, waits until the resident sets do not change any more, and returns
// what each has in use. Without the collections the figure would depend on when the last one was.
func settled(ctx context.Context, processes []watched) ([]usage, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for range 3 { // pools are emptied by the second collection; what has finalizers goes with the one after
		for _, p := range processes {
			if err := p.get(ctx, "/debug/pprof/heap?gc=1", io.Discard); err != nil {
				return nil, err
			}
		}
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	last, looks := 0.0, 0
	for looks < calmLooks {
		sum := 0.0
		for _, p := range processes {
			rss, err := rssKiB(p.pid)
			if err != nil {
				return nil, err
			}
			sum += rss
		}
		if looks++; math.Abs(sum-last) > calm*sum {
			last, looks = sum, 0
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("memory does not settle: %w", ctx.Err())
		}
	}
	all := make([]usage, len(processes))
	for i, p := range processes {
		var err error
		if all[i], err = p.usage(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// usage asks the kernel and the process itself.
func (p *watched) usage(ctx context.Context) (u usage, err error) {
	if u.rss, err = rssKiB(p.pid); err != nil {
		return u, err
	}
	err = p.metrics(ctx, map[string]*float64{
		"go_memstats_heap_alloc_bytes": &u.heap, "go_memstats_stack_inuse_bytes": &u.stacks, "go_goroutines": &u.goroutines,
	})
	u.heap /= 1 << 10
	u.stacks /= 1 << 10
	return u, err
}

// metrics reads what the process says of itself: for each name, the sum of its series. All are to be there.
func (p *watched) metrics(ctx context.Context, wanted map[string]*float64) error {
	var text strings.Builder
	if err := p.get(ctx, "/metrics", &text); err != nil {
		return err
	}
	found := map[string]bool{}
	lines := bufio.NewScanner(strings.NewReader(text.String()))
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ := strings.Cut(series, "{")
		to := wanted[name]
		if to == nil {
			continue
		}
		// Labels may hold spaces; the value is the last word.
		n, err := strconv.ParseFloat(value[strings.LastIndexByte(value, ' ')+1:], 64)
		if err != nil {
			return fmt.Errorf("metric %s of %s: %w", name, p.name, err)
		}
		if !found[name] {
			*to = 0
		}
		found[name] = true
		*to += n
	}
	for name := range wanted {
		if !found[name] {
			return fmt.Errorf("%s has no metric %s", p.name, name)
		}
	}
	return nil
}

// profile writes a profile by its name among those of net/http/pprof to a file of the directory.
func (p *watched) profile(ctx context.Context, dir, name, query string) (err error) {
	file, err := os.Create(filepath.Join(dir, p.name+"."+name+".pprof")) //nolint:gosec // where the user wants it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return p.get(ctx, "/debug/pprof/"+name+query, file)
}

// get copies what the admin listener answers.
func (p *watched) get(ctx context.Context, path string, to io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+path, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s of %s: %s", path, p.name, resp.Status)
	}
	_, err = io.Copy(to, resp.Body)
	return err
}

// rssKiB is the resident memory of a process.
func rssKiB(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
		}
	}
	return 0, errors.New("no VmRSS in /proc")
}
