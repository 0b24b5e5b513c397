package conn

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// Poller waits for the silent peers of many connections on one goroutine, by epoll(7), so that a connection on which nothing
// is said needs neither a goroutine nor its stack. A nil Poller waits for none; each connection then has a goroutine of its own.
//
// It knows a connection for as long as it waits, under a number that is used once: what the system says of an earlier wait,
// or of a descriptor that was closed and is somebody else's by now, finds nobody.
type Poller struct {
	file *os.File // the epoll instance
	raw  syscall.RawConn
	done chan struct{} // closed when the goroutine has ended

	mu    sync.Mutex
	over  bool     // guarded by mu; the goroutine ends
	seats []seat   // guarded by mu
	free  []uint32 // guarded by mu; of seats
}

// seat is where a connection waits. The number of a wait is that of the seat, in its low half, and how often it was taken.
type seat struct {
	guest guest // nil: it is free
	taken uint32
}

// guest is a connection that waits; rest has it go on, on the goroutine that calls it.
type guest interface{ rest() }

// NewPoller returns a poller, to be closed when no connection uses it any more. The error is that the system has no descriptor
// or no memory left.
func NewPoller() (*Poller, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an epoll instance: %w", err)
	}
	// Being non-blocking is what makes the runtime wait for it as for a socket: that costs no thread.
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("make an epoll instance: %w", err), syscall.Close(fd))
	}
	p := &Poller{file: os.NewFile(uintptr(fd), "epoll"), done: make(chan struct{})}
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, p.file.Close())
	}
	go p.run()
	return p, nil
}

// Close ends the poller. Connections that wait then do so on goroutines of their own.
func (p *Poller) Close() error {
	if p == nil {
		return nil
	}
	err := p.file.Close()
	<-p.done
	return err
}

// atOnce is how many connections are asked for at a time.
const atOnce = 128

func (p *Poller) run() {
	defer close(p.done)
	events := make([]syscall.EpollEvent, atOnce)
	// An error means that the poller is closed. It is a service to the connections, which can do without.
	_ = p.raw.Read(func(fd uintptr) (done bool) {
		for {
			n, err := syscall.EpollWait(int(fd), events, 0)
			switch {
			case errors.Is(err, syscall.EINTR):
			case err != nil:
				return true
			case n == 0:
				return false
			}
			for i := range max(n, 0) {
				p.wake(number(&events[i]))
			}
		}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for _, s := range p.seats {
		if s.guest != nil {
			go s.guest.rest()
		}
	}
	p.seats, p.free = nil, nil
}

// An event carries the number of a wait in the eight bytes that are the caller's.
func interest(number uint64) syscall.EpollEvent {
	return syscall.EpollEvent{
		Events: syscall.EPOLLIN | syscall.EPOLLONESHOT,
		Fd:     int32(uint32(number)), Pad: int32(uint32(number >> 32)),
	}
}

func number(e *syscall.EpollEvent) uint64 {
	return uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32
}

// Len is how many connections wait.
func (p *Poller) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.seats) - len(p.free)
}

// seat makes c wait, of which no goroutine reads then, until the peer says something or rouse is called: rest goes on after
// that, on a new goroutine. It reports false if c has to wait by itself.
func (p *Poller) seat(c *Conn) bool {
	if p == nil {
		return false
	}
	raw, ok := c.net.Raw()
	if !ok {
		return false
	}
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return false
	}
	c.wait.number = p.place(c)
	how, ev := syscall.EPOLL_CTL_ADD, interest(c.wait.number)
	if c.wait.known {
		how = syscall.EPOLL_CTL_MOD
	}
	c.wait.known = true
	p.mu.Unlock()

	// The wait may be over, and rest be running, before this is.
	var enrol error
	err := raw.Control(func(fd uintptr) {
		err := p.raw.Control(func(ep uintptr) { enrol = syscall.EpollCtl(int(ep), how, int(fd), &ev) })
		enrol = cmp.Or(err, enrol)
	})
	if cmp.Or(err, enrol) == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leave(c.wait.number) == nil {
		return true // somebody else has ended the wait, and rest has been called
	}
	c.wait.known = false
	return false
}

// place gives g a free seat and returns the number of the wait. Called with mu held.
func (p *Poller) place(g guest) uint64 {
	if len(p.free) == 0 {
		p.free = append(p.free, uint32(len(p.seats)))
		p.seats = append(p.seats, seat{})
	}
	i := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	s := &p.seats[i]
	s.guest, s.taken = g, s.taken+1
	return uint64(s.taken)<<32 | uint64(i)
}

// leave ends the wait with the number and returns who has waited, nil if it was over before. Called with mu held.
func (p *Poller) leave(number uint64) guest {
	i := uint32(number)
	if uint64(i) >= uint64(len(p.seats)) || uint64(p.seats[i].taken) != number>>32 {
		return nil
	}
	g := p.seats[i].guest
	if g != nil {
		p.seats[i].guest = nil
		p.free = append(p.free, i)
	}
	return g
}

// rouse ends the wait of c, if it waits: rest finds out why.
func (p *Poller) rouse(c *Conn) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.leave(c.wait.number); g != nil {
		go g.rest()
	}
}

// wake ends the wait with the number, if there is one.
func (p *Poller) wake(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.leave(number); g != nil {
		go g.rest()
	}
}
