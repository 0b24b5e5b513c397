// Command pgtmp runs a command on a throw-away Postgres, made from the machine's own binaries:
//
//	pgtmp [-v] [-- command arguments...]
//
// The command finds the server's URL in APIARY_TEST_POSTGRES; pgtmp stops the server when the command has
// ended, or when it is told to end itself, and exits with the command's code. Without a command it prints
// the URL and waits for a signal. The server is fast and forgets: never keep anything in it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/apiary-relay/apiary/pkg/postgres/private"
)

const (
	envURL = "APIARY_TEST_POSTGRES"
	// maxConns is enough for a few test packages at once, each with a few pools.
	maxConns = 300
	// stopTimeout is how long a fast shutdown may take before an immediate one.
	stopTimeout = 10 * time.Second
	// killAfter is how long the command may go on after it was told to end.
	killAfter = 15 * time.Second
	// signalled is what shells add to the number of the signal that ended a command.
	signalled = 128
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("pgtmp", flag.ContinueOnError)
	flags.SetOutput(stderr)
	verbose := flags.Bool("v", false, "show what Postgres says")
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: pgtmp [-v] [-- command arguments...]")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return 2
	}
	// From here on a signal means: end the command, stop the server, go.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	code, err := withServer(ctx, *verbose, flags.Args(), signals, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "pgtmp:", err)
		return max(code, 1)
	}
	return code
}

// withServer runs the command on a server that is gone, with its data, when it returns.
func withServer(ctx context.Context, verbose bool, command []string, signals <-chan os.Signal, stdout, stderr io.Writer) (code int, err error) {
	dir, err := os.MkdirTemp("", "pgtmp-")
	if err != nil {
		return 1, fmt.Errorf("make a place for postgres: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Root starts Postgres as somebody else, who has to enter; what is inside is closed again.
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // see above
		return 1, fmt.Errorf("open the place for postgres: %w", err)
	}
	level := slog.LevelError
	if verbose {
		level = slog.LevelDebug
	}
	starting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started := make(chan struct{})
	watched := make(chan os.Signal, 1)
	go func() { // a signal while it starts ends the start
		defer close(watched)
		select {
		case s := <-signals:
			cancel(fmt.Errorf("ended by %s", s))
			watched <- s
		case <-started:
		}
	}()
	cluster, err := private.Start(starting, private.Config{
		DataDir: dir, Database: "postgres", MaxConns: maxConns, Throwaway: true,
		Log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})),
	})
	close(started)
	s, ended := <-watched
	if err != nil {
		return codeOf(s, 1), err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, cluster.Stop(ctx))
	}()
	if ended {
		return codeOf(s, 1), nil
	}
	if len(command) == 0 {
		fmt.Fprintf(stdout, "%s=%s\n", envURL, cluster.URL())
		select {
		case s := <-signals:
			return codeOf(s, 0), nil
		case <-cluster.Done():
			return 1, cluster.Err()
		}
	}
	return runCommand(ctx, command, cluster.URL(), signals, stdout, stderr)
}

// runCommand runs the command to its end and returns its exit code. Signals are passed on; Ctrl-C in a
// terminal reaches the command anyway, and hearing it twice does no harm to a test run.
func runCommand(ctx context.Context, command []string, url string, signals <-chan os.Signal, stdout, stderr io.Writer) (int, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // running what it is given is its purpose
	cmd.Env = append(os.Environ(), envURL+"="+url)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, stdout, stderr
	if err := cmd.Start(); err != nil {
		return 127, fmt.Errorf("run %s: %w", command[0], err)
	}
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	var kill <-chan time.Time
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended just now
			kill = time.After(killAfter)
		case <-kill:
			_ = cmd.Process.Kill() // it may have ended just now
		case err := <-waited:
			return exitCode(cmd.ProcessState, err)
		}
	}
}

func exitCode(state *os.ProcessState, err error) (int, error) {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 1, fmt.Errorf("wait for the command: %w", err)
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return signalled + int(status.Signal()), nil
	}
	return state.ExitCode(), nil
}

// codeOf is the exit code for having been ended by s, or otherwise when there was no signal.
func codeOf(s os.Signal, otherwise int) int {
	if number, ok := s.(syscall.Signal); ok {
		return signalled + int(number)
	}
	return otherwise
}
