package private

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// tailLines is how much of what Postgres said is kept for the text of an error.
	tailLines = 20
	// maxLine bounds one line of Postgres's log.
	maxLine = 4 << 10
	// drainWait is how long the log is read after the server has ended.
	drainWait = 5 * time.Second
)

// environment is all that the programs get: nothing of PGPORT, PGDATA and the like may leak in.
func (b Binaries) environment() []string {
	return []string{"PATH=" + b.Dir + ":/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
}

// process is the running server. One goroutine starts it, waits for it and closes done.
type process struct {
	process *os.Process
	done    chan struct{}
	// err is why it ended; read only after done.
	err  error
	said *logWriter
}

// startProcess starts the server and returns at once.
func startProcess(ctx context.Context, b Binaries, a account, dir string, args []string, log *slog.Logger) (*process, error) {
	//nolint:gosec // The arguments are this package's own.
	cmd := exec.Command(b.Command("postgres"), args...) //nolint:noctx // the server is stopped by signals, in Stop
	cmd.Dir = dir
	cmd.Env = b.environment()
	cmd.SysProcAttr = serverAttr(a.credential())
	cmd.WaitDelay = drainWait
	said := &logWriter{log: log, ctx: context.WithoutCancel(ctx)}
	cmd.Stderr = said
	p := &process{done: make(chan struct{}), said: said}
	started := make(chan error, 1)
	go func() {
		// Linux sends the signal of SysProcAttr.Pdeathsig when the *thread* that started the child ends,
		// so that thread has to live as long as the server.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		said.flush()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.process = cmd.Process
	return p, nil
}

// stop asks for a fast shutdown, and for an immediate one when ctx ends first; it returns when the server
// has ended.
func (p *process) stop(ctx context.Context) {
	if p.signalled(ctx, syscall.SIGINT) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), immediateWait)
	defer cancel()
	if p.signalled(ctx, syscall.SIGQUIT) {
		return
	}
	_ = p.process.Kill() // it may have ended just now
	<-p.done
}

// signalled sends s and reports whether the server ended before ctx did.
func (p *process) signalled(ctx context.Context, s syscall.Signal) bool {
	_ = p.process.Signal(s) // it may have ended already
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// logWriter passes Postgres's lines on to slog and keeps the last ones. Used by one copying goroutine;
// tail may be called by any.
type logWriter struct {
	log *slog.Logger
	ctx context.Context // another process's lines have none of their own

	mu      sync.Mutex
	partial []byte
	last    []string
}

// Write never fails: Postgres must not block or die for its log.
func (w *logWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for rest := b; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if room := maxLine - len(w.partial); room > 0 {
			w.partial = append(w.partial, line[:min(len(line), room)]...)
		}
		if whole {
			w.emitLocked()
		}
		rest = after
	}
	return len(b), nil
}

func (w *logWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.emitLocked()
}

func (w *logWriter) emitLocked() {
	line := strings.TrimSpace(string(w.partial))
	w.partial = w.partial[:0]
	if line == "" {
		return
	}
	if len(w.last) == tailLines {
		w.last = append(w.last[:0], w.last[1:]...)
	}
	w.last = append(w.last, line)
	level := slog.LevelDebug
	switch severity, _, _ := strings.Cut(line, ":"); severity {
	case "PANIC":
		level = slog.LevelError
	case "FATAL", "WARNING":
		level = slog.LevelWarn
	}
	if strings.HasSuffix(line, "terminating connection due to administrator command") {
		level = slog.LevelDebug // it is we who stop it
	}
	w.log.LogAttrs(w.ctx, level, "postgres", slog.String("text", line))
}

// tail returns the last lines Postgres wrote.
func (w *logWriter) tail() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.last, "\n")
}
