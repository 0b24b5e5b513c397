package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/apiary-relay/apiary/services/conformance"
)

const (
	// startTimeout bounds the start of a topology, on a busy machine; stopTimeout its end.
	startTimeout = 2 * time.Minute
	stopTimeout  = time.Minute
)

// localCommand starts both topologies one after the other.
type localCommand struct {
	Bin                string `help:"Directory of the programs." default:"bin" type:"path"`
	NATSServer         string `name:"nats-server" help:"The program of NATS." default:".bin/nats-server" type:"path"`
	conformance.Config `embed:""`
}

// run holds both topologies to the NIPs, the second one also when the first one failed.
func (c *localCommand) run(ctx context.Context, stdout io.Writer) error {
	return errors.Join(
		c.topology(ctx, stdout, "all-in-one", filepath.Join(c.Bin, "apiary"), func(_, dir string) []string {
			return []string{"serve", "--listen", "127.0.0.1:0", "--admin.listen", "127.0.0.1:0", "--data", dir}
		}),
		c.topology(ctx, stdout, "split cluster", filepath.Join(c.Bin, "cluster"), func(port, dir string) []string {
			return []string{"--bin", c.Bin, "--nats-server", c.NATSServer, "--port", port, "--data", dir}
		}),
	)
}

// topology starts a program on fresh data, runs the suite, and stops the program.
func (c *localCommand) topology(ctx context.Context, stdout io.Writer, name, program string, args func(port, dir string) []string) (err error) {
	fmt.Fprintf(stdout, "== %s\n", name)
	dir, err := os.MkdirTemp("", "apiary-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// Postgres refuses root and runs as another user, who has to reach its directory.
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // what is private inside has modes of its own
		return err
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	data := filepath.Join(dir, "data")
	p, err := start(ctx, program, args(port, data)...)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	urls, err := gateways(data)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if _, err := conformance.Run(ctx, append(urls, p.url), c.Config, stdout); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// freePort finds a loopback port that nobody listens on.
func freePort(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// gateways returns the URLs of a cluster's gateways behind its balancer, none for the all-in-one. Clients
// that connect to one and then to another show what a single URL cannot.
func gateways(data string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(data, "cluster.json")) //nolint:gosec // a directory of our own
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var state struct {
		Processes []struct {
			Service string `json:"service"`
			Address string `json:"address"`
		} `json:"processes"`
	}
	if err := json.Unmarshal(raw, &state); err != nil {
		return nil, fmt.Errorf("read cluster.json: %w", err)
	}
	var urls []string
	for _, p := range state.Processes {
		if p.Service == "gateway" {
			urls = append(urls, "ws://localhost"+p.Address[strings.LastIndexByte(p.Address, ':'):])
		}
	}
	return urls, nil
}

// process is a program that was started.
type process struct {
	cmd    *exec.Cmd
	exited chan error
	output *watch
	url    string
}

// start starts a program and waits for the line that says where it is ready.
func start(ctx context.Context, program string, args ...string) (*process, error) {
	p := &process{exited: make(chan error, 1), output: &watch{ready: make(chan string, 1)}}
	// Not CommandContext: the process is stopped by signal, in stop, so that it can clean up.
	p.cmd = exec.Command(program, args...) //nolint:gosec,noctx // our own program, stopped in stop
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us; we stop it
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.exited <- p.cmd.Wait() }()
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case p.url = <-p.output.ready:
		return p, nil
	case err := <-p.exited:
		return nil, fmt.Errorf("ended before it was ready: %w\n%s", err, p.output)
	case <-timer.C:
		return nil, errors.Join(fmt.Errorf("not ready after %s\n%s", startTimeout, p.output), p.stop())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), p.stop())
	}
}

// stop ends the program as Ctrl-C would.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case err := <-p.exited:
		if err != nil {
			return fmt.Errorf("did not end cleanly: %w\n%s", err, p.output)
		}
		return nil
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		return fmt.Errorf("did not end within %s of SIGINT", stopTimeout)
	}
}

var readyLine = regexp.MustCompile(`(?m)^ready +(ws://\S+)$`)

// watch keeps what a program prints and looks for the line that says where it is ready.
type watch struct {
	ready chan string

	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
	said bool         // guarded by mu
}

// Write implements io.Writer.
func (w *watch) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(b)
	if m := readyLine.FindSubmatch(w.text.Bytes()); m != nil && !w.said {
		w.said = true
		w.ready <- string(m[1])
	}
	return len(b), nil
}

// String returns what was printed.
func (w *watch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
