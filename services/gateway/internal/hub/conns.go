package hub

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Member is an open connection.
type Member interface {
	// Restart flushes what is queued and closes the connection with 1012. It does not wait.
	Restart()
	// Kill ends the connection at once.
	Kill()
}

// Admission is the answer to a wish to connect.
type Admission uint8

// The answers.
const (
	Admitted Admission = iota
	Full
	Draining
)

// Conns is the set of open connections.
//
//	open ──Refuse──▶ draining (admits nobody; ends when the last member has left)
type Conns struct {
	limit int

	mu       sync.Mutex
	draining bool
	reserved int // admitted and not yet released, members included
	members  map[Member]struct{}
	empty    chan struct{} // closed while draining and nobody is left
}

// NewConns returns a set for at most limit connections; 0 is no limit.
func NewConns(limit int) *Conns {
	return &Conns{limit: limit, members: make(map[Member]struct{}), empty: make(chan struct{})}
}

// Reserve takes a place before the upgrade. After Admitted the caller must Release it.
func (c *Conns) Reserve() Admission {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.draining:
		return Draining
	case c.limit > 0 && c.reserved >= c.limit:
		return Full
	}
	c.reserved++
	return Admitted
}

// Release gives a place back.
func (c *Conns) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserved--
	c.checkEmptyLocked()
}

// Join adds a member that holds a place. If a drain has begun meanwhile it reports false, and the
// member is to be restarted at once.
func (c *Conns) Join(m Member) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return false
	}
	c.members[m] = struct{}{}
	return true
}

// Leave removes a member; its place is kept until Release.
func (c *Conns) Leave(m Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.members, m)
}

// Len returns the number of places taken.
func (c *Conns) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reserved
}

// Members returns a snapshot.
func (c *Conns) Members() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Member, 0, len(c.members))
	for m := range c.members {
		all = append(all, m)
	}
	return all
}

// Refuse admits nobody from now on.
func (c *Conns) Refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.draining {
		c.draining = true
		c.checkEmptyLocked()
	}
}

func (c *Conns) checkEmptyLocked() {
	if !c.draining || c.reserved > 0 {
		return
	}
	select {
	case <-c.empty:
	default:
		close(c.empty)
	}
}

// Empty is closed once nobody is admitted any more and the last place was given back.
func (c *Conns) Empty() <-chan struct{} { return c.empty }

// minPause is the least pause of a drain: members that are due within it are restarted together, as
// one wave.
const minPause = 50 * time.Millisecond

// Drain refuses newcomers and restarts the members in random order, in waves spread over window with
// jitter, so that clients do not all come back in the same second; then it waits until the last one
// has left or ctx ends, which is no error: the owner closes what is left.
func (c *Conns) Drain(ctx context.Context, window time.Duration) {
	c.Refuse()
	all := c.Members()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) //nolint:gosec // no secret
	begin := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i, m := range all {
		step := window / time.Duration(len(all))
		due := step*time.Duration(i) + rand.N(step+1) //nolint:gosec // jitter, so that gateways do not march in step
		if pause := due - time.Since(begin); pause >= minPause {
			timer.Reset(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		}
		m.Restart()
	}
	select {
	case <-c.empty:
	case <-ctx.Done():
	}
}
