package supervise

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is one process and its successors under one name.
type child struct {
	spec       Spec
	supervisor *Supervisor
	stopOnce   sync.Once
	stop       chan struct{} // closed when it is to end
	ended      chan struct{} // closed when it has ended for good

	status  Status        // guarded by supervisor.mu
	process *os.Process   // guarded by supervisor.mu; os.Process never signals one that was waited for
	exited  chan struct{} // guarded by supervisor.mu; the process's, closed when it has been waited for
}

// fork starts the process; the channel is closed when it has ended.
func (c *child) fork() (<-chan struct{}, error) {
	output, err := os.OpenFile(c.spec.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = output.Close() }()            // the child has its own
	cmd := exec.Command(c.spec.Path, c.spec.Args...) //nolint:gosec,noctx // the caller's own programs; Stop ends them, politely first
	cmd.Env = c.spec.Env
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = attributes()
	if err := c.supervisor.fork(cmd.Start); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	c.supervisor.mu.Lock()
	c.process, c.exited = cmd.Process, exited
	c.status.PID, c.status.State = cmd.Process.Pid, Starting
	c.supervisor.mu.Unlock()
	c.supervisor.changed()
	if c.stopping() {
		c.signal(syscall.SIGTERM) // Stop may have come just before there was something to signal
	}

	go func() {
		defer close(exited)
		c.wait(cmd)
	}()
	return exited, nil
}

// wait returns when the process has ended, and reports it if it was not told to.
func (c *child) wait(cmd *exec.Cmd) {
	reason := "exit status 0"
	if err := cmd.Wait(); err != nil {
		reason = err.Error()
	}
	c.supervisor.mu.Lock()
	c.status.PID = 0
	c.supervisor.mu.Unlock()
	if !c.stopping() {
		c.supervisor.cfg.Log.Warn("process died",
			slog.String("name", c.spec.Name), slog.Int("pid", cmd.Process.Pid), slog.String("reason", reason))
	}
}

// keep restarts the process whenever it ends, until it is to stop.
func (c *child) keep(exited <-chan struct{}) {
	pause := firstPause
	for {
		started := time.Now()
		<-exited
		if c.stopping() {
			c.end(Stopped)
			return
		}
		if !c.supervisor.cfg.Restart {
			c.end(Dead)
			return
		}
		if time.Since(started) > settled {
			pause = firstPause
		}
		if exited = c.restart(&pause); exited == nil {
			c.end(Stopped)
			return
		}
	}
}

// restart starts the process again after the pause, which it doubles, as often as it takes to get it
// started; it returns nil when the child is to stop.
func (c *child) restart(pause *time.Duration) <-chan struct{} {
	for {
		c.set(Waiting)
		timer := time.NewTimer(*pause)
		*pause = min(2**pause, lastPause)
		select {
		case <-timer.C:
		case <-c.stop:
			timer.Stop()
			return nil
		}
		exited, err := c.fork()
		if err != nil {
			c.supervisor.cfg.Log.Error("process cannot be started", slog.String("name", c.spec.Name), slog.String("error", err.Error()))
			continue
		}
		c.supervisor.mu.Lock()
		c.status.Restarts++
		pid := c.status.PID
		c.supervisor.mu.Unlock()
		if awaitReadyUntil(c.stop, c.spec.ReadyURL, exited) == nil {
			c.set(Running)
			c.supervisor.cfg.Log.Warn("process is back", slog.String("name", c.spec.Name), slog.Int("pid", pid))
		}
		return exited
	}
}

func (c *child) stopping() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// over reports whether the child has ended for good.
func (c *child) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func (c *child) set(state State) {
	c.supervisor.mu.Lock()
	c.status.State = state
	c.supervisor.mu.Unlock()
	c.supervisor.changed()
}

// end marks the child as over for good.
func (c *child) end(state State) {
	c.set(state)
	close(c.ended)
}

// signal sends a signal to the process, if there is one that has not been waited for.
func (c *child) signal(signal os.Signal) {
	c.supervisor.mu.Lock()
	process := c.process
	c.supervisor.mu.Unlock()
	if process == nil {
		return
	}
	if err := process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.supervisor.cfg.Log.Error("signal not sent", slog.String("name", c.spec.Name), slog.String("error", err.Error()))
	}
}

// tail returns the last lines of a log file for an error message, indented, with a line break before.
func tail(path string) string {
	const size, lines = 8 << 10, 12
	file, err := os.Open(path) //nolint:gosec // a log that this package made
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.Size() > size {
		if _, err := file.Seek(-size, io.SeekEnd); err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(io.LimitReader(file, size))
	if err != nil || len(text) == 0 {
		return ""
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "\n  " + strings.Join(all[max(0, len(all)-lines):], "\n  ")
}
