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
// done, so to go first alone would mean to wait for theirs. Such a place rests after its work for three times as long as that took,
// so that the greedy leave room on what the places stand for too, and not only in the queue.
//
// Keys may cost nothing, so each belongs to a crowd, such as an address, that has a share of its own. A crowd beyond it
// is not held back as a whole, since that may be many who ask little each: only who hurries, in asking more before what it
// has asked for is done, is greedy then, whatever its key has used.
//
// Keys may also come all at once, each with a burst that it has not used. Who has come a moment ago is a newcomer: it is due no
// earlier than when it is one no more, so that those who have been there go first, and until then newcomers leave them some of the
// places.
//
// Safe for concurrent use; no goroutines but the timers of places that rest.
type Fair[K, C comparable] struct {
	usage  *Keyed[K] // milliseconds of holding a place
	crowds *Keyed[C] // likewise
	places int
	most   [classes]int // places that a class may have
	grace  time.Duration

	mu      sync.Mutex
	held    int                // guarded by mu
	heldBy  [classes]int       // guarded by mu; of held, by class; of the greedy those that rest as well
	waiting [classes]fairQueue // guarded by mu
	asked   uint64             // guarded by mu; numbers the waiters
}

// FairConfig says how a Fair shares.
type FairConfig struct {
	// Places is how many there are, Greedy how many of them those may have that are beyond their share; at least 1 each.
	Places, Greedy int
	// Grace is for how long one is a newcomer, and Newcomers how many places may be held that were given to such; at least 1. A
	// Grace of 0 makes nobody a newcomer.
	Grace     time.Duration
	Newcomers int
	// Share is a key's time of holding one place, a second in the long run, and Burst at once; 0 makes every key modest.
	Share, Burst time.Duration
	// CrowdShare and CrowdBurst are the same of a crowd.
	CrowdShare, CrowdBurst time.Duration
	// Keys is how many keys, and how many crowds, are remembered, as by Keyed.
	Keys int
}

// Asker is who asks for a place.
type Asker[K, C comparable] struct {
	Key   K
	Crowd C
	// Hurries is set for who asks while much that it has asked for before is not done.
	Hurries bool
	// Came is when it came; the zero time is long ago.
	Came time.Time
	// Places is how many its work takes; 0 is one. It is let in as soon as one is free, and takes the others from those who
	// come after it: nothing is too much for what there is.
	Places int
}

// Classes of those who ask.
const (
	modest = iota
	newcomer
	greedy
	classes
)

// A place rests restFactor times as long as its work took, and maxRest at most: who waits for one is not to pay for what took
// long by an accident.
const (
	restFactor = 3
	maxRest    = 2 * time.Second
)

// NewFair returns places that are all free.
func NewFair[K, C comparable](cfg FairConfig) *Fair[K, C] {
	places := max(cfg.Places, 1)
	return &Fair[K, C]{
		usage:  NewKeyed[K](float64(cfg.Share.Milliseconds()), int(cfg.Burst.Milliseconds()), cfg.Keys),
		crowds: NewKeyed[C](float64(cfg.CrowdShare.Milliseconds()), int(cfg.CrowdBurst.Milliseconds()), cfg.Keys),
		places: places, grace: cfg.Grace,
		most: [classes]int{modest: places, newcomer: min(max(cfg.Newcomers, 1), places), greedy: min(max(cfg.Greedy, 1), places)},
	}
}

// Acquire waits for a place. release gives it back and may be called once only; it is nil if ctx ended first, and the
// error is then the cause of that.
func (f *Fair[K, C]) Acquire(ctx context.Context, who Asker[K, C]) (release func(), err error) {
	began := time.Now()
	w := &fairWaiter{places: max(who.Places, 1), granted: make(chan struct{}), due: began}
	beyond, crowded := f.spend(who, 1, began, began)
	if settled := who.Came.Add(f.grace); settled.After(began) {
		w.class, w.due = newcomer, settled
	}
	if beyond || (crowded && who.Hurries) {
		w.class = greedy
	}
	w.due = w.due.Add(f.usage.Used(who.Key, began))
	f.mu.Lock()
	f.asked++
	w.turn = f.asked
	class := w.class
	heap.Push(&f.waiting[class], w)
	f.grant()
	waits := w.place >= 0
	f.mu.Unlock()
	var settled <-chan time.Time
	if waits && class == newcomer {
		timer := time.NewTimer(who.Came.Add(f.grace).Sub(began))
		defer timer.Stop()
		settled = timer.C
	}
	for waiting := true; waiting; {
		select {
		case <-w.granted:
			waiting = false
		case <-settled:
			f.settle(w)
			settled = nil
		case <-ctx.Done():
			f.giveUp(w)
			return nil, context.Cause(ctx)
		}
	}
	began = time.Now()
	return func() {
		now := time.Now()
		took := now.Sub(began)
		f.spend(who, int(took.Milliseconds()), began, now)
		f.release(w, took)
	}, nil
}

// giveUp takes back what w has asked for, or got meanwhile.
func (f *Fair[K, C]) giveUp(w *fairWaiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.place >= 0 {
		heap.Remove(&f.waiting[w.class], w.place)
		f.grant() // the greedy may have waited for it
	} else {
		f.held -= w.places
		f.free(w)
	}
}

// settle makes one that still waits a newcomer no more: it is not to wait for what others hold who were new with it.
func (f *Fair[K, C]) settle(w *fairWaiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.place >= 0 {
		heap.Remove(&f.waiting[newcomer], w.place)
		w.class = modest
		heap.Push(&f.waiting[modest], w)
		f.grant()
	}
}

// spend notes use since a time, and reports whether the key and the crowd are beyond their share.
func (f *Fair[K, C]) spend(who Asker[K, C], milliseconds int, from, now time.Time) (key, crowd bool) {
	key = f.usage.SpendSince(who.Key, milliseconds, from, now) > 0
	crowd = f.crowds.SpendSince(who.Crowd, milliseconds, from, now) > 0
	return key, crowd
}

// release gives back what was held for so long.
func (f *Fair[K, C]) release(w *fairWaiter, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held -= w.places
	if w.class != greedy || took <= 0 {
		f.free(w)
		return
	}
	time.AfterFunc(min(restFactor*took, maxRest), func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.free(w)
	})
	f.grant() // the modest need not wait for that
}

// free ends the use of places by the class of w. Called with mu held.
func (f *Fair[K, C]) free(w *fairWaiter) {
	f.heldBy[w.class] -= w.places
	f.grant()
}

// grant gives free places to whose turn it is. Called with mu held.
func (f *Fair[K, C]) grant() {
	for f.held < f.places {
		class := f.next()
		if class < 0 {
			return
		}
		w := heap.Pop(&f.waiting[class]).(*fairWaiter) //nolint:forcetypeassert // the queue holds nothing else
		f.held += w.places
		f.heldBy[class] += w.places
		close(w.granted)
	}
}

// next is the class whose turn it is, -1 if no class that waits may have a place. Called with mu held.
func (f *Fair[K, C]) next() int {
	may := func(class int) bool { return len(f.waiting[class]) > 0 && f.heldBy[class] < f.most[class] }
	switch {
	case may(newcomer) && (!may(modest) || f.waiting[newcomer][0].due.Before(f.waiting[modest][0].due)):
		return newcomer
	case may(modest):
		return modest
	case may(greedy) && (len(f.waiting[newcomer]) == 0 || f.held+1 < f.places):
		return greedy // newcomers that wait have what they may; one place more stays free for who was there
	}
	return -1
}

// fairWaiter is one Acquire.
type fairWaiter struct {
	class   int // guarded by the Fair's mu while it waits
	places  int
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
