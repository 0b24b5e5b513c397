// Package attack does to a relay what hostile clients do: it sends a given number of bytes of malformed, abusive
// and expensive traffic over many sockets at a time. What is sent follows from a seed; when each byte goes out
// does not, since the relay holds its attackers back.
//
// Attackers expect nothing of the relay: to be refused, cut off or not read is what they deserve. Who wants to
// know how others fare meanwhile measures that elsewhere. Run starts all goroutines and waits for them.
package attack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config is an attack.
type Config struct {
	// Addr is the relay's HOST:PORT.
	Addr string
	// Seed decides what is sent.
	Seed uint64
	// Bytes is how much is sent, over all sockets, before the attack ends.
	Bytes int64
	// Sockets is how many connections attack at a time; besides them there are the Lurkers.
	Sockets int
	// Lurkers is how many connections send ten bytes a second, or subscribe to everything and never read.
	Lurkers int
	// Longest ends the attack, if it is not 0, whatever has been sent.
	Longest time.Duration
	// Only chooses the attacks with this in their name; all if it is empty.
	Only string
}

// Tally is what one sort of attack did.
type Tally struct {
	// Bytes were sent, in Sessions connections.
	Bytes    int64 `json:"bytes"`
	Sessions int64 `json:"sessions"`
}

const (
	// sessionTime ends the connection of an attacker, who then comes back with another attack; so does its share
	// of the bytes, such that each attack has its turn.
	sessionTime = 5 * time.Second
	lurkTime    = 40 * time.Second
	// patience is how often in a row a relay may not be reached.
	patience = 200
	// sendBuffer is of a connection, in bytes.
	sendBuffer = 32 << 10
	// pause is how long an attacker waits after it was not even let in.
	pause = 50 * time.Millisecond
)

// Run attacks until all bytes are sent and returns what was done, by name. The error is that of ctx, or that the
// relay cannot be reached at all.
func Run(ctx context.Context, cfg Config) (map[string]Tally, error) {
	r := &run{cfg: cfg, tallies: map[string]Tally{}}
	chosen := slices.DeleteFunc(slices.Clone(attacks), func(a attack) bool { return !strings.Contains(a.name, cfg.Only) })
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no attack has %q in its name", cfg.Only)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if cfg.Longest > 0 {
		defer time.AfterFunc(cfg.Longest, func() { cancel(errEnough) }).Stop()
	}
	var lurkers, attackers sync.WaitGroup
	for i := range cfg.Lurkers {
		lurkers.Go(func() { _ = r.repeat(ctx, i, lurking) }) // the attackers tell when there is no relay
	}
	for i := range cfg.Sockets {
		attackers.Go(func() {
			if err := r.repeat(ctx, cfg.Lurkers+i, chosen); err != nil {
				cancel(err)
			}
		})
	}
	attackers.Wait()
	err := context.Cause(ctx)
	cancel(nil)
	lurkers.Wait()
	if errors.Is(err, errEnough) {
		err = nil
	}
	return r.tallies, err
}

// errEnough ends an attack that has taken long enough.
var errEnough = errors.New("long enough")

type run struct {
	cfg  Config
	sent atomic.Int64

	mu      sync.Mutex
	tallies map[string]Tally // guarded by mu
}

// repeat goes through the attacks, each on a connection of its own, until all bytes are sent. Each attacker begins
// with another one.
func (r *run) repeat(ctx context.Context, attacker int, attacks []attack) error {
	refused := 0
	for n := 0; ctx.Err() == nil && r.sent.Load() < r.cfg.Bytes; n++ {
		a := attacks[(attacker+n)%len(attacks)]
		rng := rand.New(rand.NewPCG(r.cfg.Seed, uint64(attacker)<<32|uint64(n))) //nolint:gosec // repeatable on purpose
		sent, err := r.session(ctx, a, rng)
		r.note(a.name, sent)
		if !errors.Is(err, errNotLetIn) {
			refused = 0
			continue
		}
		if refused++; refused == patience {
			return fmt.Errorf("the relay cannot be reached: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

func (r *run) note(name string, sent int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tallies[name]
	t.Bytes += sent
	t.Sessions++
	r.tallies[name] = t
}

// errNotLetIn says that there was no connection, or no WebSocket, or no authentication.
var errNotLetIn = errors.New("not let in")

// session carries out one attack on a new connection.
func (r *run) session(ctx context.Context, a attack, rng *rand.Rand) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(a.time, sessionTime))
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.cfg.Addr)
	if err != nil {
		return 0, errors.Join(errNotLetIn, err)
	}
	defer conn.Close()
	// What the system keeps for a relay that does not read is not sent to it.
	if err := conn.(*net.TCPConn).SetWriteBuffer(sendBuffer); err != nil { //nolint:forcetypeassert // dialled as tcp
		return 0, err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	s := &socket{ctx: ctx, conn: conn, addr: r.cfg.Addr, rng: rng, total: &r.sent, most: r.cfg.Bytes, share: r.cfg.Bytes / int64(2*len(attacks))}
	if err := s.enter(a.as); err != nil {
		return s.sent, errors.Join(errNotLetIn, err)
	}
	var reader sync.WaitGroup
	defer reader.Wait()
	defer conn.Close()
	if !a.deaf {
		reader.Go(s.discard)
	}
	for s.more() {
		if a.do(s) != nil {
			break // cut off
		}
	}
	return s.sent, nil
}
