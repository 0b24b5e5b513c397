package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"golang.org/x/sync/semaphore"

	"github.com/apiary-relay/apiary/pkg/config"
)

// Config is one process's connection to NATS.
type Config struct {
	URL          config.Secret `help:"NATS URL, or several separated by commas (nats://user:password@host:4222, tls://...)." default:"nats://127.0.0.1:4222"`
	Credentials  string        `help:"File with NATS credentials (JWT and key)." type:"path"`
	CA           string        `help:"File with the certificates that the server's must be signed by." type:"path"`
	PingInterval time.Duration `help:"How often the connection is checked; it is given up after three missed answers." default:"2s"`
	MaxInFlight  int           `help:"Most published messages that wait for their acknowledgement." default:"256"`
	AckTimeout   time.Duration `help:"How long an acknowledgement may take." default:"5s"`
}

// Validate reports what cannot work.
func (c *Config) Validate() error {
	return errors.Join(
		checkURLs(c.URL.Reveal()),
		config.Positive("ping-interval", c.PingInterval),
		config.Positive("max-in-flight", c.MaxInFlight),
		config.Positive("ack-timeout", c.AckTimeout),
	)
}

// checkURLs says what keeps a list of URLs from being NATS servers'; an empty list is for connections within the
// process. A URL may hold a password and is not in the error.
func checkURLs(list string) error {
	if list == "" {
		return nil
	}
	for i, text := range strings.Split(list, ",") {
		text = strings.TrimSpace(text)
		if !strings.Contains(text, "://") {
			text = "nats://" + text
		}
		server, err := url.Parse(text)
		if bad := (*url.Error)(nil); errors.As(err, &bad) {
			err = bad.Err
		}
		switch {
		case err != nil:
		case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, server.Scheme):
			err = fmt.Errorf("scheme %q is not nats, tls, ws or wss", server.Scheme)
		case server.Hostname() == "":
			err = errors.New("no host")
		}
		if err != nil {
			return fmt.Errorf("url %d of url is not one of NATS, such as nats://host:4222: %w", i+1, err)
		}
	}
	return nil
}

// Options are what a Bus is given besides its Config.
type Options struct {
	// Name is shown in the server's list of connections.
	Name string
	// InProcess, when set, is where connections come from instead of Config.URL (bus/embedded).
	InProcess nats.InProcessConnProvider
	// Log is required.
	Log *slog.Logger
	// Meter counts; nil counts nothing.
	Meter metric.Meter
}

// Connection behaviour that nobody needs to change.
const (
	dialTimeout   = 2 * time.Second
	writeTimeout  = 5 * time.Second
	reconnectWait = 100 * time.Millisecond
	// reconnectJitter spreads the clients of a server that comes back.
	reconnectJitter  = 250 * time.Millisecond
	pingsOutstanding = 3
	apiTimeout       = 5 * time.Second
)

// Bus is a connection to NATS that is made anew for as long as it takes whenever it is lost.
type Bus struct {
	conn    *nats.Conn
	js      jetstream.JetStream
	log     *slog.Logger
	metrics *metrics
	slots   *semaphore.Weighted
	// inFlight waits for the goroutines of PublishAsync; closed ends them, and no more are started. gone is closed when
	// the driver has called its last handler.
	inFlight sync.WaitGroup
	closing  sync.RWMutex // held while closed is closed, shared while a message is handed to the driver
	closed   chan struct{}
	close    sync.Once
	gone     chan struct{}
	// generation is raised with every connection that was made.
	generation atomic.Uint64

	mu      sync.Mutex
	changed chan struct{}          // closed and replaced at every change of the connection
	states  map[string]*stateCache // by stream
}

// Connect makes a Bus. It does not wait for the server: while that cannot be reached, publishing fails
// with ErrDisconnected and consumers wait. Only a configuration that cannot work is an error.
func Connect(ctx context.Context, cfg Config, opts Options) (*Bus, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure bus: %w", err)
	}
	if opts.InProcess == nil && !cfg.URL.IsSet() {
		return nil, errors.New("connect to bus: no url")
	}
	if opts.Meter == nil {
		opts.Meter = noop.Meter{}
	}
	b := &Bus{
		log: opts.Log, slots: semaphore.NewWeighted(int64(cfg.MaxInFlight)), closed: make(chan struct{}), gone: make(chan struct{}),
		changed: make(chan struct{}), states: make(map[string]*stateCache),
	}
	var err error
	if b.metrics, err = newMetrics(opts.Meter); err != nil {
		return nil, fmt.Errorf("make bus metrics: %w", err)
	}
	if b.conn, err = nats.Connect(cfg.URL.Reveal(), b.natsOptions(ctx, cfg, opts)...); err != nil {
		return nil, fmt.Errorf("connect to bus: %w", err)
	}
	b.js, err = jetstream.New(b.conn, jetstream.WithDefaultTimeout(apiTimeout), jetstream.WithPublishAsyncTimeout(cfg.AckTimeout))
	if err != nil {
		b.conn.Close()
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	return b, nil
}

func (b *Bus) natsOptions(ctx context.Context, cfg Config, opts Options) []nats.Option {
	ctx = context.WithoutCancel(ctx) // the handlers below run for as long as the connection lives
	list := []nats.Option{
		nats.Name(opts.Name),
		nats.Timeout(dialTimeout),
		nats.FlusherTimeout(writeTimeout),
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.IgnoreAuthErrorAbort(), // credentials may be rotated while we wait
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.ReconnectBufSize(-1), // fail at once: the outbox keeps what was not published
		nats.PingInterval(cfg.PingInterval),
		nats.MaxPingsOutstanding(pingsOutstanding),
		nats.ConnectHandler(func(c *nats.Conn) { b.connected(ctx, c) }),
		nats.ReconnectHandler(func(c *nats.Conn) { b.connected(ctx, c) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil is our own Close
				b.log.LogAttrs(ctx, slog.LevelWarn, "lost the bus", slog.Any("error", err))
			}
			b.announce()
		}),
		nats.ClosedHandler(func(*nats.Conn) {
			b.announce()
			close(b.gone) // the driver closes once
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			attrs := []slog.Attr{slog.Any("error", err)}
			if sub != nil {
				attrs = append(attrs, slog.String("subject", sub.Subject))
			}
			b.log.LogAttrs(ctx, slog.LevelWarn, "bus reports an error", attrs...)
		}),
	}
	if cfg.Credentials != "" {
		list = append(list, nats.UserCredentials(cfg.Credentials))
	}
	if cfg.CA != "" {
		list = append(list, nats.RootCAs(cfg.CA))
	}
	if opts.InProcess != nil {
		list = append(list, nats.InProcessServer(opts.InProcess))
	}
	return list
}

// connected runs in the driver's goroutine, perhaps before Connect has returned.
func (b *Bus) connected(ctx context.Context, conn *nats.Conn) {
	b.generation.Add(1)
	b.metrics.connects.Add(ctx, 1)
	b.log.LogAttrs(ctx, slog.LevelInfo, "connected to bus", slog.String("server", conn.ConnectedServerName()))
	b.announce()
}

// announce wakes everybody who waits for a change of the connection.
func (b *Bus) announce() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.changed)
	b.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change of the connection: lost, or made again.
func (b *Bus) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// Connected reports whether the server can be reached, as far as is known.
func (b *Bus) Connected() bool { return b.conn.IsConnected() }

// Ping returns nil when the server has answered over the connection of the moment, ErrDisconnected when there is none, or
// an error when ctx ends first; ctx must end.
func (b *Bus) Ping(ctx context.Context) error {
	if !b.Connected() {
		return ErrDisconnected
	}
	if err := b.conn.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("ping bus: %w", err)
	}
	return nil
}

// awaitConnection returns when the server can be reached, or with the cause when ctx or the Bus ends.
func (b *Bus) awaitConnection(ctx context.Context) error {
	for {
		changed := b.Changed() // before the question, so that no change is missed
		if b.Connected() {
			return nil
		}
		select {
		case <-changed:
		case <-b.closed:
			return fmt.Errorf("wait for bus: %w", nats.ErrConnectionClosed)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// untilChanged returns a context that ends with errAgain at the next change of the connection. release
// has to be called.
func (b *Bus) untilChanged(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	changed := b.Changed()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-changed:
			cancel(errAgain)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-watched
	}
}

// MaxPayload is the largest message in bytes, headers included, that the server takes; 0 until the first
// connection was made.
func (b *Bus) MaxPayload() int64 { return b.conn.MaxPayload() }

// Close ends the connection. Publishes that wait for their acknowledgement fail, consumers return. When it returns
// nothing of the Bus runs any more but the consumers, which their callers wait for.
func (b *Bus) Close() {
	b.close.Do(func() {
		b.closing.Lock()
		defer b.closing.Unlock()
		close(b.closed)
	})
	// From here on nothing is handed to the driver, whose publisher, if it began only now, would never hear of the end
	// of the connection and wait for it forever. (Its own clean-up has the same fault, and is not called.)
	b.conn.Close()
	b.inFlight.Wait()
	<-b.gone
}
