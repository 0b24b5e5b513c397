package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	"github.com/apiary-relay/apiary/tools/internal/programs"
	"github.com/apiary-relay/apiary/tools/internal/supervise"
	"github.com/apiary-relay/apiary/tools/internal/topology"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// patience bounds every wait, on a machine that may be compiling.
const patience = 2 * time.Minute

// running is a cluster in a goroutine of the test.
type running struct {
	t    *testing.T
	opts options
	stop context.CancelFunc
	done chan error
}

// start runs a cluster of two each and waits until it says that it is ready.
func start(t *testing.T) *running {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{t: t, stop: stop, done: make(chan error, 1), opts: options{
		bin: programs.Bin(t), natsServer: programs.NATSServer(t), data: t.TempDir(),
		gateways: 2, ingests: 2, fanouts: 2, searches: 2, port: port, databaseURL: pgtest.URL(t),
	}}
	reader, writer := io.Pipe()
	go func() {
		err := runCluster(ctx, r.opts, writer, slog.New(slog.NewTextHandler(t.Output(), nil)))
		writer.CloseWithError(err)
		r.done <- err
	}()
	t.Cleanup(func() {
		stop()
		<-r.done
	})
	lines := bufio.NewScanner(reader)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "ready ") {
			go io.Copy(io.Discard, reader)
			return r
		}
	}
	require.FailNow(t, "the cluster is not ready", "%v", lines.Err())
	return nil
}

// state reads cluster.json.
func (r *running) state() topology.State {
	r.t.Helper()
	content, err := os.ReadFile(filepath.Join(r.opts.data, "cluster.json"))
	require.NoError(r.t, err)
	var state topology.State
	require.NoError(r.t, json.Unmarshal(content, &state))
	return state
}

// process returns a process by name once ok accepts it.
func (r *running) process(name string, ok func(topology.ProcessState) bool) topology.ProcessState {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, p := range r.state().Processes {
			if p.Name == name && ok(p) {
				return p
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.FailNow(r.t, "the process is not as it should be", name)
		}
	}
}

// client prepares one of the client's commands.
func (r *running) client(command string, args ...string) *exec.Cmd {
	args = append([]string{"client", command, "--relay", r.state().URL, "--key", filepath.Join(r.opts.data, "client.key")}, args...)
	return exec.CommandContext(r.t.Context(), filepath.Join(r.opts.bin, "apiary"), args...)
}

func (r *running) publish(text string) {
	r.t.Helper()
	output, err := r.client("publish", text).CombinedOutput()
	require.NoError(r.t, err, string(output))
}

// listen starts a listener and returns its lines, from when it listens.
func (r *running) listen() <-chan string {
	r.t.Helper()
	cmd := r.client("listen")
	stdout, err := cmd.StdoutPipe()
	require.NoError(r.t, err)
	stderr, err := cmd.StderrPipe()
	require.NoError(r.t, err)
	require.NoError(r.t, cmd.Start())
	lines, ended := make(chan string, 64), make(chan struct{})
	go func() {
		defer close(ended)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
	})
	notes := bufio.NewReader(stderr)
	for {
		note, err := notes.ReadString('\n')
		require.NoError(r.t, err)
		if strings.HasPrefix(note, "listening") {
			return lines
		}
	}
}

func TestKilledProcessesComeBackAndNothingIsLost(t *testing.T) {
	r := start(t)
	r.publish("first")
	lines := r.listen()
	expect := func(text string) {
		select {
		case line := <-lines:
			require.True(t, strings.HasSuffix(line, text), "%q should be %q", line, text)
		case <-time.After(patience):
			require.FailNow(t, "not delivered", text)
		}
	}
	whatever := func(topology.ProcessState) bool { return true }
	for _, victim := range []string{"ingest-1", "fanout-1", "fanout-2", "search-1", "gateway-1", "gateway-2", "audit-1", "nats"} {
		before := r.process(victim, whatever)
		require.NoError(t, syscall.Kill(before.PID, syscall.SIGKILL))
		r.publish("after " + victim)
		expect("after " + victim)
		after := r.process(victim, func(p topology.ProcessState) bool { return p.State == supervise.Running && p.Restarts == 1 })
		require.NotEqual(t, before.PID, after.PID)
		require.Equal(t, before.Address, after.Address)
		require.FileExists(t, after.Log)
	}
	output, err := r.client("query", "--json").Output()
	require.NoError(t, err)
	require.Equal(t, 9, bytes.Count(output, []byte("\n")), "%s", output)

	began := time.Now()
	r.stop()
	require.NoError(t, <-r.done)
	r.done <- nil
	require.Less(t, time.Since(began), 10*time.Second)
	for _, p := range r.state().Processes {
		require.Equal(t, supervise.Stopped, p.State, p.Name)
		require.Zero(t, p.PID, p.Name)
	}
}

func TestMistakesAreSaidOnce(t *testing.T) {
	var out, errs strings.Builder
	require.Equal(t, exitUsage, run(t.Context(), []string{"--nope"}, &out, &errs))
	require.Empty(t, out.String())
	require.Equal(t, "cluster: flag provided but not defined: -nope\nRun \"cluster -help\" to see what there is.\n", errs.String())

	errs.Reset()
	require.Zero(t, run(t.Context(), []string{"-help"}, &out, &errs))
	require.Contains(t, out.String(), "-gateways")
	require.Empty(t, errs.String())
}

func TestAHangupStopsInOrderAndASecondOneDoesNotHurry(t *testing.T) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // also if the tests run under nohup
	defer signal.Stop(hangups)
	ctx, stop := withSignals(t.Context())
	defer stop()
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	<-ctx.Done()
	require.Eventually(t, func() bool { return signal.Ignored(syscall.SIGHUP) }, patience, time.Millisecond)
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"--port", "70000"}, {"surplus"}, {"--no-such-flag"}} {
		_, err := parse(args, io.Discard)
		require.Error(t, err, "%v", args)
	}
	opts, err := parse([]string{"--gateways", "3", "--no-restart", "--data", "d"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 3, opts.gateways)
	require.True(t, opts.noRestart)
	require.Equal(t, "d", opts.data)
}
