package rpc

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// retryPause keeps a peer that answers health checks with errors from being asked in a tight loop.
const retryPause = 50 * time.Millisecond

// peer watches one replica. Its run goroutine owns the connection:
//
//	connecting ──▶ checking ──▶ watching ──▶ checking …
//	     ▲             │            │
//	     └─────────────┴────────────┘  transport lost, or cut because a check was not answered
//
// live and retiring are guarded by Peers.mu.
type peer struct {
	name   string
	owner  *Peers
	conn   *grpc.ClientConn
	health healthpb.HealthClient
	link   *link

	ctx    context.Context // the connection's own root
	cancel context.CancelFunc

	live     bool
	retiring *time.Timer // set while the name is gone from the target's addresses
}

func newPeer(ctx context.Context, name string, owner *Peers) (*peer, error) {
	l := &link{memory: owner.deps.Memory}
	conn, err := dial(name, owner.deps, l.dial)
	if err != nil {
		return nil, err
	}
	q := &peer{name: name, owner: owner, conn: conn, health: healthpb.NewHealthClient(conn), link: l}
	q.ctx, q.cancel = context.WithCancel(ctx)
	return q, nil
}

// retire hides the peer and ends it after a grace. Called with Peers.mu held.
func (q *peer) retire() {
	if q.retiring == nil {
		q.retiring = time.AfterFunc(retireGrace, q.cancel)
	}
}

// keep undoes retire. Called with Peers.mu held.
func (q *peer) keep() {
	if q.retiring != nil && q.retiring.Stop() {
		q.retiring = nil
	}
}

// run watches the replica until the peer's context ends.
func (q *peer) run() {
	defer func() {
		q.cancel()
		q.owner.setLive(q, false, "stopped")
		_ = q.conn.Close() // only an already closed connection gives an error
		q.owner.remove(q)
	}()
	for q.connect() {
		w := q.startWatch()
		why := q.supervise(w)
		w.stop()
		q.owner.setLive(q, false, why)
		if !q.pause(retryPause) {
			return
		}
	}
}

// connect waits until the connection is ready; false when the peer ends.
func (q *peer) connect() bool {
	for {
		s := q.conn.GetState()
		switch s {
		case connectivity.Ready:
			return q.ctx.Err() == nil
		case connectivity.Idle:
			q.conn.Connect()
		case connectivity.Shutdown:
			return false
		case connectivity.Connecting, connectivity.TransientFailure:
		}
		if !q.conn.WaitForStateChange(q.ctx, s) {
			return false
		}
	}
}

// supervise checks the replica again and again until it is lost, and says why it is. The watch brings
// changes of a healthy replica and the loss of its transport at once; the checks find a replica whose
// transport stands but that does not answer.
func (q *peer) supervise(w *watch) (why string) {
	updates := w.updates
	for {
		serving, err := q.check()
		if err != nil {
			if status.Code(err) == codes.DeadlineExceeded {
				q.link.cut() // nothing may wait for a replica that is frozen or cut off
			}
			return err.Error()
		}
		q.owner.setLive(q, serving, "health check")
		next := time.NewTimer(q.owner.cfg.PingInterval)
	waiting:
		for {
			select {
			case <-q.ctx.Done():
				next.Stop()
				return "stopped"
			case <-next.C:
				break waiting
			case serving, ok := <-updates:
				if ok {
					q.owner.setLive(q, serving, "health watch")
					continue
				}
				next.Stop()
				if w.err != nil && status.Code(w.err) != codes.Unimplemented {
					return w.err.Error()
				}
				updates = nil // a server without Watch: the checks alone must do
				break waiting
			}
		}
	}
}

// check asks whether the replica serves. When the answer does not come in time it asks once more, for
// a quarter of the time: perhaps it was this process that got no CPU, and then the answer is there.
func (q *peer) check() (serving bool, err error) {
	serving, err = q.ask(q.owner.cfg.PingTimeout)
	if status.Code(err) == codes.DeadlineExceeded {
		serving, err = q.ask(q.owner.cfg.PingTimeout / 4)
	}
	return serving, err
}

func (q *peer) ask(timeout time.Duration) (serving bool, err error) {
	ctx, cancel := context.WithTimeout(q.ctx, timeout)
	defer cancel()
	resp, err := q.health.Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return false, fmt.Errorf("check health: %w", err)
	}
	return resp.GetStatus() == healthpb.HealthCheckResponse_SERVING, nil
}

// pause waits; false when the peer ends.
func (q *peer) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-q.ctx.Done():
		return false
	}
}

// watch is a health v1 Watch stream. Its goroutine sets err before it closes updates.
type watch struct {
	updates chan bool
	err     error
	cancel  context.CancelFunc
	done    chan struct{}
}

func (q *peer) startWatch() *watch {
	ctx, cancel := context.WithCancel(q.ctx)
	w := &watch{updates: make(chan bool), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer close(w.updates)
		stream, err := q.health.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err != nil {
			w.err = fmt.Errorf("watch health: %w", err)
			return
		}
		for {
			resp, err := stream.Recv()
			if err != nil {
				w.err = fmt.Errorf("watch health: %w", err)
				return
			}
			select {
			case w.updates <- resp.GetStatus() == healthpb.HealthCheckResponse_SERVING:
			case <-ctx.Done():
				w.err = ctx.Err()
				return
			}
		}
	}()
	return w
}

// stop ends the stream and waits for its goroutine.
func (w *watch) stop() {
	w.cancel()
	<-w.done
}
