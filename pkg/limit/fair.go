package limit

import (
	"cmp"
	"container/heap"
	"context"
	"sync"
	"time"
)

// Fair shares a number of places, such as queries that run at a time, among keys by how long each has held
// places lately: whoever asks is put back in the queue by as much time as its key has used up, so that nobody waits for
// ever for others that come anew. Who has held places for more than its share, because it asks much or what is hard to
// answer, is greedy, and all of these together get only a part of the places: a place is given back when its work is
// done, so to go first alone would mean to wait for theirs. Safe for concurrent use; no goroutines.
type Fair[K comparable] struct {
	usage  *Keyed[K] // milliseconds of holding a place
	places int
	greedy int // places for keys that are in debt

	mu      sync.Mutex
	held    int          // guarded by mu
	heldBy  [2]int       // guarded by mu; of held: by modest and by greedy keys
	waiting [2]fairQueue // guarded by mu; likewise
	asked   uint64       // guarded by mu; numbers the waiters
}

// Classes of keys.
const (
	modest = iota
	greedy
)

// NewFair returns places that are all free. A key's share is perSecond of holding one place in the long run, and
// burst at once; greedy is how many places those get that are beyond it. At most maxKeys keys are remembered, as
// by Keyed. perSecond of 0 or less makes every key modest. Each of the counts is at least 1.
func NewFair[K comparable](places, greedy int, perSecond, burst time.Duration, maxKeys int) *Fair[K] {
	places = max(places, 1)
	return &Fair[K]{
		usage:  NewKeyed[K](float64(perSecond.Milliseconds()), int(burst.Milliseconds()), maxKeys),
		places: places, greedy: min(max(greedy, 1), places),
	}
}

// Acquire waits for a place. release gives it back and may be called once only; it is nil if ctx ended first, and the
// error is then the cause of that.
func (f *Fair[K]) Acquire(ctx context.Context, key K) (release func(), err error) {
	began := time.Now()
	w := &fairWaiter{granted: make(chan struct{})}
	if f.usage.Spend(key, 1, began) > 0 {
		w.class = greedy
	}
	w.due = began.Add(f.usage.Used(key, began))
	f.mu.Lock()
	f.asked++
	w.turn = f.asked
	heap.Push(&f.waiting[w.class], w)
	f.grant()
	f.mu.Unlock()
	select {
	case <-w.granted:
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		if w.place >= 0 {
			heap.Remove(&f.waiting[w.class], w.place)
		} else {
			f.release(w.class)
		}
		return nil, context.Cause(ctx)
	}
	began = time.Now()
	return func() {
		now := time.Now()
		f.usage.Spend(key, int(now.Sub(began).Milliseconds()), now)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.release(w.class)
	}, nil
}

// release gives a place back. Called with mu held.
func (f *Fair[K]) release(class int) {
	f.held--
	f.heldBy[class]--
	f.grant()
}

// grant gives free places to whose turn it is. Called with mu held.
func (f *Fair[K]) grant() {
	for f.held < f.places {
		class := modest
		if len(f.waiting[modest]) == 0 {
			class = greedy
			if len(f.waiting[greedy]) == 0 || f.heldBy[greedy] >= f.greedy {
				return
			}
		}
		w := heap.Pop(&f.waiting[class]).(*fairWaiter) //nolint:forcetypeassert // the queue holds nothing else
		f.held++
		f.heldBy[class]++
		close(w.granted)
	}
}

// fairWaiter is one Acquire.
type fairWaiter struct {
	class   int
	due     time.Time // when it asked, and what its key had used then
	turn    uint64
	place   int // in its queue; -1: it has left it. Guarded by the Fair's mu
	granted chan struct{}
}

// fairQueue is a heap of waiters by when they are due, and then by turn.
type fairQueue []*fairWaiter

func (q fairQueue) Len() int { return len(q) }

func (q fairQueue) Less(i, j int) bool {
	return cmp.Or(q[i].due.Compare(q[j].due), cmp.Compare(q[i].turn, q[j].turn)) < 0
}

func (q fairQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push implements heap.Interface.
func (q *fairQueue) Push(x any) {
	w := x.(*fairWaiter) //nolint:forcetypeassert // see Acquire
	w.place = len(*q)
	*q = append(*q, w)
}

// Pop implements heap.Interface.
func (q *fairQueue) Pop() any {
	last := len(*q) - 1
	w := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	w.place = -1
	return w
}
