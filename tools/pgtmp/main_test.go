package main

import (
	"bufio"
	"context"
	"flag"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// asCommand makes the test binary behave as pgtmp, with the arguments that follow.
var asCommand = flag.Bool("as-pgtmp", false, "be pgtmp")

func TestMain(m *testing.M) {
	flag.Parse()
	if *asCommand {
		os.Exit(run(context.Background(), flag.Args(), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// pgtmp starts pgtmp with its data in a place that the test can look at.
func pgtmp(t *testing.T, args ...string) (cmd *exec.Cmd, lines *bufio.Scanner, temp string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	temp, err = os.MkdirTemp("", "test-") //nolint:usetesting // Postgres's user has to enter it
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(temp) })
	require.NoError(t, os.Chmod(temp, 0o777))
	cmd = exec.CommandContext(t.Context(), self, append([]string{"-as-pgtmp", "--"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	return cmd, bufio.NewScanner(out), temp
}

func requireNothingLeft(t *testing.T, url, temp string) {
	t.Helper()
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = pgx.Connect(t.Context(), url)
	require.Error(t, err)
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"success":      {[]string{"--", "true"}, 0},
		"failure":      {[]string{"--", "sh", "-c", "exit 7"}, 7},
		"killed":       {[]string{"--", "sh", "-c", "kill -9 $$"}, 137},
		"no such":      {[]string{"--", "/no/such/command"}, 127},
		"unknown flag": {[]string{"-nonsense"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, lines, temp := pgtmp(t, c.args...)
			require.False(t, lines.Scan())
			_ = cmd.Wait()
			require.Equal(t, c.code, cmd.ProcessState.ExitCode())
			requireNothingLeft(t, "postgres:///x?host="+temp, temp)
		})
	}
}

func TestSignalsStopEverything(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		signal syscall.Signal
	}{
		"terminate a command": {[]string{"--", "sh", "-c", "echo $APIARY_TEST_POSTGRES; exec sleep 600"}, syscall.SIGTERM},
		"interrupt a command": {[]string{"--", "sh", "-c", "echo $APIARY_TEST_POSTGRES; exec sleep 600"}, syscall.SIGINT},
		"hang up alone":       {nil, syscall.SIGHUP},
		"interrupt alone":     {nil, syscall.SIGINT},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, lines, temp := pgtmp(t, c.args...)
			require.True(t, lines.Scan())
			url := strings.TrimPrefix(lines.Text(), envURL+"=")
			conn, err := pgx.Connect(t.Context(), url)
			require.NoError(t, err)
			defer conn.Close(t.Context()) // an open session does not hold the end up
			began := time.Now()
			require.NoError(t, cmd.Process.Signal(c.signal))
			_ = cmd.Wait()
			require.Equal(t, signalled+int(c.signal), cmd.ProcessState.ExitCode())
			require.Less(t, time.Since(began), stopTimeout)
			requireNothingLeft(t, url, temp)
		})
	}
}
