package private

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	// settled is how long a server must have run for its death to be no consequence of its start.
	settled = 10 * time.Second
	// maxDeaths is how often in a row a server may die before it has settled.
	maxDeaths = 5
)

// keeper waits for the server and, if it may, starts it again when it has died.
//
//	running ──dies──▶ starting ──ready──▶ running …
//	   │                  │ fails, or too often
//	   └──shut down, or not to be started again──▶ ended (done is closed)
//
// One goroutine goes through this; stop ends it from any state.
type keeper struct {
	again  func(context.Context) (*process, error) // nil: what has ended stays so
	log    *slog.Logger
	ctx    context.Context // of starts; ends with stop
	cancel context.CancelFunc
	done   chan struct{}
	err    error // why it ended by itself; read only after done

	mu      sync.Mutex
	server  *process // guarded by mu; the latest
	stopped bool     // guarded by mu
}

func keep(ctx context.Context, server *process, again func(context.Context) (*process, error), log *slog.Logger) *keeper {
	k := &keeper{again: again, log: log, done: make(chan struct{}), server: server}
	k.ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go k.run(server)
	return k
}

func (k *keeper) run(server *process) {
	defer close(k.done)
	defer k.cancel()
	for deaths := 0; ; {
		began := time.Now()
		<-server.done
		if time.Since(began) >= settled {
			deaths = 0
		}
		deaths++
		k.err = ended(server)
		if k.again == nil || server.err == nil || deaths > maxDeaths || k.ctx.Err() != nil {
			return
		}
		k.log.LogAttrs(k.ctx, slog.LevelWarn, "postgres died, starting it again", slog.Any("error", server.err))
		next, err := k.again(k.ctx)
		if err != nil {
			k.err = errors.Join(k.err, err)
			return
		}
		k.log.LogAttrs(k.ctx, slog.LevelWarn, "postgres is back", slog.Int("pid", next.process.Pid))
		if server = next; !k.replace(server) {
			server.stop(k.ctx) // at once: stop was called meanwhile, and waits
		}
	}
}

// ended is what is said of a server that ended by itself.
func ended(server *process) error {
	if server.err == nil {
		return errors.New("private postgres was shut down by somebody else")
	}
	return fmt.Errorf("private postgres ended: %w\n%s", server.err, server.said.tail())
}

// replace notes the new server, or reports false when there should be none any more.
func (k *keeper) replace(server *process) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.server = server
	return !k.stopped
}

// stop ends the server for good and returns when it has ended.
func (k *keeper) stop(ctx context.Context) {
	k.mu.Lock()
	k.stopped = true
	server := k.server
	k.mu.Unlock()
	k.cancel()
	server.stop(ctx)
	<-k.done
}

// kill kills the latest server and returns when it is gone.
func (k *keeper) kill() error {
	k.mu.Lock()
	server := k.server
	k.mu.Unlock()
	if err := server.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill postgres: %w", err)
	}
	<-server.done
	return nil
}
