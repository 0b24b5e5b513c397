package faultproxy

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"
)

// link is one connection through the proxy.
type link struct {
	proxy  *Proxy
	ctx    context.Context // the connection's own root
	client *net.TCPConn
}

// halfCloser is what TCP and unix connections can do.
type halfCloser interface{ CloseWrite() error }

// run moves bytes until both directions have ended or the link is reset.
func (l *link) run() {
	defer reset(l.client)
	if !l.proxy.awaitOpen(l.ctx) {
		return
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	server, err := dialer.DialContext(l.ctx, l.proxy.network, l.proxy.target)
	if err != nil {
		return
	}
	defer reset(server)
	// Closing is what wakes goroutines that read or write.
	stop := context.AfterFunc(l.ctx, func() {
		reset(l.client)
		reset(server)
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { l.move(server, l.client) })
	both.Go(func() { l.move(l.client, server) })
	both.Wait()
}

type chunk struct {
	data []byte
	due  time.Time
}

// move copies one direction, through a queue so that a delay does not slow reading down.
func (l *link) move(to, from net.Conn) {
	queue := make(chan chunk, queued)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.write(to, queue)
	}()
	defer func() { <-done }()
	defer close(queue)
	buffer := make([]byte, chunkSize)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			select {
			case queue <- chunk{data: bytes.Clone(buffer[:n]), due: l.proxy.due()}:
			case <-done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// write delivers chunks when they are due, then passes the end of the stream on.
func (l *link) write(to net.Conn, queue <-chan chunk) {
	for c := range queue {
		if wait := time.Until(c.due); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-l.ctx.Done():
				timer.Stop()
				return
			}
		}
		if !l.proxy.awaitOpen(l.ctx) {
			return
		}
		if _, err := to.Write(c.data); err != nil {
			return
		}
	}
	if l.proxy.awaitOpen(l.ctx) {
		if half, ok := to.(halfCloser); ok {
			half.CloseWrite() //nolint:errcheck // it is closed already
		}
	}
}
