package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// server is one all-in-one process with data of its own.
type server struct {
	cmd    *exec.Cmd
	exited chan error
	dir    string
	log    bytes.Buffer
	addr   string
	admin  string
}

// url is where clients connect.
func (s *server) url() string { return "ws://" + s.addr }

// freeAddress finds a loopback port that nobody listens on.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// unlimited are the flags that switch off what holds one client back: a measurement is a flood.
var unlimited = []string{"--gateway.event-rate=0", "--gateway.req-rate=0", "--gateway.read-rate=0", "--gateway.address-read-rate=0"}

// startServer starts the all-in-one on fresh data, with further flags, and returns when it answers.
func startServer(ctx context.Context, binary string, flags ...string) (*server, error) {
	return startServerOn(ctx, -1, binary, flags...)
}

// startServerOn is startServer on one processor, if core is not negative.
func startServerOn(ctx context.Context, core int, binary string, flags ...string) (*server, error) {
	dir, err := os.MkdirTemp("", "apiary-bench-")
	if err != nil {
		return nil, err
	}
	// Postgres refuses root and runs as another user, who has to reach its directory.
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // an empty benchmark directory; what is private inside has modes of its own
		return nil, err
	}
	addr, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	adminAddr, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, addr: addr, admin: adminAddr, exited: make(chan error, 1)}
	// Not CommandContext: the process is stopped by signal, in stop, so that it can clean up.
	flags = append([]string{"serve", "--listen", addr, "--admin.listen", adminAddr, "--data", filepath.Join(dir, "data")}, flags...)
	binary, flags = pinned(core, binary, flags)
	s.cmd = exec.Command(binary, flags...) //nolint:gosec,noctx // our own binary, stopped in stop
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	// A session of its own, as a service has: where the system shares its processor among sessions (sched(7), autogroup), a server
	// is not to pay for what others take that were started from here, such as clients.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	go func() { s.exited <- s.cmd.Wait() }()
	if err := s.waitReady(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	client := &http.Client{Timeout: 2 * time.Second}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		// Unlike its information, names are there only once there is a community.
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/.well-known/nostr.json?name=_", nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-s.exited:
			s.exited <- err
			return fmt.Errorf("the server ended: %w\n%s", err, s.log.String())
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready: %w\n%s", ctx.Err(), s.log.String())
		case <-tick.C:
		}
	}
}

// stop ends the process as Ctrl-C would and removes its data.
func (s *server) stop() error {
	defer os.RemoveAll(s.dir)
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-s.exited:
		if err != nil {
			return fmt.Errorf("the server did not end cleanly: %w\n%s", err, s.log.String())
		}
		return nil
	case <-time.After(30 * time.Second):
		_ = s.cmd.Process.Kill()
		return errors.New("the server did not end within 30 s of SIGTERM")
	}
}

// rssKiB is the resident memory of the process.
func (s *server) rssKiB() (float64, error) { return rssKiB(s.cmd.Process.Pid) }

// cpu is the processor time the process has used.
func (s *server) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, used, err := parseStat(string(stat))
	return used, err
}

// alive reports whether the process has not ended.
func (s *server) alive() bool {
	select {
	case err := <-s.exited:
		s.exited <- err
		return false
	default:
		return true
	}
}

// goroutines is how many the process has, by its admin listener.
func (s *server) goroutines(ctx context.Context) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+"/debug/pprof/goroutine?debug=1", nil)
	if err != nil {
		return 0, err
	}
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var n int
	if _, err := fmt.Fscanf(resp.Body, "goroutine profile: total %d", &n); err != nil {
		return 0, fmt.Errorf("read the goroutine profile: %w", err)
	}
	return n, nil
}

// goroutinesAfter waits until there are at most enough goroutines, or until patience is over, and returns how many
// there are.
func (s *server) goroutinesAfter(ctx context.Context, enough int, patience time.Duration) (int, error) {
	end := time.Now().Add(patience)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		n, err := s.goroutines(ctx)
		if err != nil || n <= enough || time.Now().After(end) {
			return n, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
