package conn

import (
	"bufio"
	"cmp"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
)

// What ends a wait or a Read besides the connection's own errors.
var (
	// errQuiet says that the peer has sent nothing for the grace and has nothing begun.
	errQuiet = errors.New("quiet")
	// errBoundary says that all frames that have come were read to their ends.
	errBoundary = errors.New("nothing is begun")
	// errLeft says that what comes is left to the closing handshake.
	errLeft = errors.New("left to the closing handshake")
)

// source is the connection that the WebSocket library reads. It has what the reading goroutine took off the socket between
// messages, where the library would wait with a deep stack; within a message it waits itself.
//
// The library reads it under a lock of its own, on the reading goroutine and at last on the one that closes. The lock turn is
// for what the reading goroutine does outside the library.
type source struct {
	*cork.Conn
	owner   *Conn
	library *bufio.Reader // the library's buffer over this

	turn    sync.Mutex
	parting atomic.Bool // the closing handshake reads what comes from here on

	buffer     *[]byte     // nil: nothing is unread
	start, end int         // of what is unread in it
	boundary   bool        // a Read that would wait ends with errBoundary
	failed     atomic.Bool // the socket is at its end
}

// wait is how a Poller knows a connection; guarded by its mu.
type wait struct {
	number uint64 // of the last wait
	known  bool   // the system has the descriptor in its list
}

// begin makes the library's buffer. behind is what the client has sent right behind its handshake, at most
// cork.BufferSize; it is copied.
func (s *source) begin(behind []byte) {
	s.library = bufio.NewReaderSize(s, readBuffer)
	if len(behind) > 0 {
		b := cork.Buffer()
		*b = append(*b, behind...)
		s.store(b)
		s.Charge(len(behind))
	}
}

func (s *source) store(b *[]byte) { s.buffer, s.start, s.end = b, 0, len(*b) }

// release gives the buffer back, with what is in it.
func (s *source) release() {
	cork.Release(s.buffer)
	s.buffer, s.start, s.end = nil, 0, 0
}

// enter takes the turn, which leave gives up. With an error it is not taken.
func (s *source) enter() error {
	s.turn.Lock()
	if s.parting.Load() {
		s.turn.Unlock()
		return errLeft // before anything is looked at that is the closing handshake's now
	}
	return nil
}

// leave gives the turn up, after a Take that has returned b and err, and says how much was taken, which the caller paces.
func (s *source) leave(b *[]byte, err error) (taken int, _ error) {
	defer s.turn.Unlock()
	switch {
	case err == nil:
		s.store(b)
		return s.end, nil
	case s.parting.Load():
		return 0, errLeft // who reads on meets the error again, if it is one
	case errors.Is(err, os.ErrDeadlineExceeded):
		if err = s.SetReadDeadline(time.Time{}); err == nil {
			return 0, errQuiet
		}
	}
	s.failed.Store(true)
	return 0, err
}

// await returns once something is unread, or with errQuiet after the grace, if there is any, and says how much was taken off
// the socket for it, which the caller paces. It holds no buffer while it waits.
func (s *source) await(grace time.Duration) (taken int, err error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	if s.buffer != nil || s.library.Buffered() > 0 {
		s.turn.Unlock()
		return 0, nil
	}
	if grace <= 0 {
		s.turn.Unlock()
		return 0, errQuiet
	}
	// The deadline is left behind, and lifted by who meets it: most do not.
	if err := s.SetReadDeadline(time.Now().Add(grace)); err != nil || s.parting.Load() { // part has set its own before
		return s.leave(nil, cmp.Or(err, errLeft))
	}
	return s.leave(s.Take())
}

// part ends the reading goroutine's waiting, for good: when it returns, only the library reads.
func (s *source) part() {
	s.parting.Store(true)
	_ = s.SetReadDeadline(time.Unix(1, 0)) // an error means that the connection is closed, which ends a wait as well
	s.turn.Lock()
	defer s.turn.Unlock()
}

// Close implements net.Conn for the library, which closes what it has no hope for: nobody else would tell who waits for it.
func (s *source) Close() error {
	s.owner.hangUp()
	return nil
}

// between says that the library has read a control frame to its end and that no message has begun. It is called under the
// library's lock.
func (s *source) between() {
	// Of a frame that has begun the library may have some bytes already, which an error would lose.
	s.boundary = s.library.Buffered() == 0
}

// Read implements net.Conn for the library.
func (s *source) Read(p []byte) (int, error) {
	boundary := s.boundary
	s.boundary = false
	if s.buffer == nil {
		if boundary {
			return 0, errBoundary
		}
		if n, err := s.fill(p); n > 0 || err != nil {
			return n, err
		}
	}
	n := copy(p, (*s.buffer)[s.start:s.end])
	s.start += n
	if s.start == s.end {
		s.release()
	}
	return n, nil
}

// fill waits for more: in p if that is large, else in the buffer.
func (s *source) fill(p []byte) (n int, err error) {
	for {
		if len(p) >= cork.BufferSize {
			n, err = s.Conn.Read(p)
		} else {
			var b *[]byte
			if b, err = s.Take(); err == nil {
				s.store(b)
				s.Pace(s.end)
			}
		}
		if n > 0 || err == nil {
			return n, nil
		}
		// A deadline of await or part is no end within a frame.
		if !errors.Is(err, os.ErrDeadlineExceeded) || s.SetReadDeadline(time.Time{}) != nil {
			s.failed.Store(true)
			return 0, err
		}
	}
}
