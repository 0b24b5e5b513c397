package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a server of others, with what it started itself.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
	log    bytes.Buffer  // to be read after it has ended
}

// startProcess starts a server, on one processor if core is not negative, and returns when it takes connections at addr.
func startProcess(ctx context.Context, core int, addr, binary string, args ...string) (*process, error) {
	binary, args = pinned(core, binary, args)
	p := &process{exited: make(chan struct{})}
	// Not CommandContext: the process is stopped by signal, in stop, so that it can clean up.
	p.cmd = exec.Command(binary, args...) //nolint:gosec,noctx // what this benchmark is told to start, stopped in stop
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // how it ends is its own affair
	}()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr); err == nil {
			return p, conn.Close()
		}
		select {
		case <-p.exited:
			return nil, fmt.Errorf("%s ended: %s\n%s", binary, p.cmd.ProcessState, p.log.String())
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%s does not listen on %s: %w", binary, addr, ctx.Err()), p.stop())
		case <-tick.C:
		}
	}
}

// pinned is a command that runs on one processor, and so do its children; with a negative core it is the command itself.
func pinned(core int, binary string, args []string) (string, []string) {
	if core < 0 {
		return binary, args
	}
	return "taskset", append([]string{"--cpu-list", strconv.Itoa(core), binary}, args...)
}

// stop ends the process as Ctrl-C would.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return nil
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
		return errors.New("the server did not end within 30 s of SIGTERM")
	}
}

// cpuOfTree is the processor time that a process and its descendants have used.
func cpuOfTree(pid int) (sum time.Duration, err error) {
	family, err := familyOf(pid)
	for _, cpu := range family {
		sum += cpu
	}
	return sum, err
}

// familyOf is a process and its descendants, with the processor time that each has used.
func familyOf(pid int) (map[int]time.Duration, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	type usage struct {
		parent int
		cpu    time.Duration
	}
	all := map[int]usage{}
	for _, path := range stats {
		stat, err := os.ReadFile(path) //nolint:gosec // of the glob
		if err != nil {
			continue // it has ended meanwhile
		}
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		parent, cpu, err := parseStat(string(stat))
		if err != nil {
			return nil, err
		}
		all[id] = usage{parent, cpu}
	}
	family := map[int]time.Duration{}
	for id, u := range all {
		for up := id; up > 1; up = all[up].parent {
			if up == pid {
				family[id] = u.cpu
				break
			}
		}
	}
	return family, nil
}

// pinFamily puts every process that this one has started, and what they start from now on, on one processor.
func pinFamily(ctx context.Context, core int) error {
	family, err := familyOf(os.Getpid())
	if err != nil {
		return err
	}
	delete(family, os.Getpid())
	for pid := range family {
		//nolint:gosec // numbers
		move := exec.CommandContext(ctx, "taskset", "--all-tasks", "--pid", "--cpu-list", strconv.Itoa(core), strconv.Itoa(pid))
		if out, err := move.CombinedOutput(); err != nil && syscall.Kill(pid, 0) == nil { // it may have ended meanwhile
			return fmt.Errorf("move process %d to processor %d: %w\n%s", pid, core, err, out)
		}
	}
	return nil
}

// parseStat reads /proc/PID/stat: the parent, and the time in user and system mode.
func parseStat(stat string) (parent int, cpu time.Duration, err error) {
	// The command's name is in parentheses and may hold spaces and parentheses. What follows begins with field 3, the
	// state; the parent is field 4, utime and stime are fields 14 and 15.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, 0, errors.New("short /proc stat")
	}
	if parent, err = strconv.Atoi(fields[1]); err != nil {
		return 0, 0, err
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, 0, err
		}
		ticks += n
	}
	const ticksPerSecond = 100 // USER_HZ, fixed on Linux
	return parent, time.Duration(ticks) * time.Second / ticksPerSecond, nil
}
