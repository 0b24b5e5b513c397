package live

import (
	"context"
	"sync"
)

// maxBacklog is how many words to the loop and commands to nodes may wait before new attachments do.
const maxBacklog = 1 << 14

// backlog counts what waits on its way to the loop and to nodes.
type backlog struct {
	mu    sync.Mutex
	n     int
	eased chan struct{} // closed when half is done; nil if nobody waits
}

func (b *backlog) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n += n
	if b.eased != nil && b.n <= maxBacklog/2 {
		close(b.eased)
		b.eased = nil
	}
}

// await blocks while too much waits. The error is the cause of ctx's end.
func (b *backlog) await(ctx context.Context) error {
	for {
		b.mu.Lock()
		if b.n < maxBacklog {
			b.mu.Unlock()
			return nil
		}
		if b.eased == nil {
			b.eased = make(chan struct{})
		}
		eased := b.eased
		b.mu.Unlock()
		select {
		case <-eased:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
