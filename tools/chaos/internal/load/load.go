package load

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/tools/chaos/internal/checker"
	"github.com/apiary-relay/apiary/tools/chaos/internal/client"
	"github.com/apiary-relay/apiary/tools/chaos/internal/scenario"
)

const (
	// dials bounds the connections that are being made, so that a gateway that died is not replaced by a stampede of
	// handshakes that take longer than it allows.
	dials = 32
	// setUp is how many of the owner's commands are on their way at once.
	setUp = 16
	// prepareTimeout bounds everything before the first event.
	prepareTimeout = 2 * time.Minute
	// global is the checker's name of what is in no channel.
	global = "global"
)

// Gateway is where clients connect.
type Gateway struct{ Name, Address string }

// Config says who uses which relay.
type Config struct {
	// Gateways are tried in turn. Host is the community's authority.
	Gateways []Gateway
	Host     string
	// Restarts says that gateways may be replaced at any time: a connection that one ends with 1012 ends as it should. So may NATS
	// be, and nobody says when: then nothing ephemeral is published, because it could not be judged.
	Restarts bool
	// Load is how much.
	Load scenario.Load
	// Log is what everything is written down in.
	Log *checker.Log
	// Note receives what is worth knowing and no fault.
	Note *slog.Logger
}

// Load is all clients of a run.
type Load struct {
	cfg      Config
	began    int64 // Unix seconds
	owner    *speaker
	topics   []*topic
	dialling chan struct{} // a token for each connection that is being made

	stop        context.CancelFunc
	people      []*subscriber
	subscribers sync.WaitGroup
	opened      sync.WaitGroup // one for each subscription that has not had its first EOSE
	published   atomic.Int64   // numbers events
	abandoned   atomic.Int64
}

// topic is what events are published on.
type topic struct {
	name     string // the channel's id, or global
	private  bool
	churners []*subscriber
}

// kind is that of the topic's events that are kept.
func (t *topic) kind() nostr.Kind {
	if t.name == global {
		return nostr.KindText
	}
	return nostr.KindChat
}

// New returns a load that has done nothing yet.
func New(cfg Config) (*Load, error) {
	key, err := nostr.GenerateSecretKey()
	if err != nil {
		return nil, err
	}
	l := &Load{cfg: cfg, began: time.Now().Unix(), dialling: make(chan struct{}, dials)}
	l.owner = &speaker{load: l, key: key}
	return l, nil
}

// dial makes a connection; not too many are made at once.
func (l *Load) dial(ctx context.Context, to Gateway, key *nostr.SecretKey) (*client.Conn, error) {
	select {
	case l.dialling <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.dialling }()
	return client.Dial(ctx, client.Options{Address: to.Address, Host: l.cfg.Host, Key: key, Now: l.cfg.Log.Now})
}

// Prepare makes the channels and their members, and returns when every subscription has had its EOSE. Close must be
// called, also after an error; the subscribers go on until then, whatever becomes of ctx.
func (l *Load) Prepare(ctx context.Context) error {
	living, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	// A name that is in use cannot be taken again: channels are those of this key.
	prefix := "chaos-" + l.owner.key.PubKey().String()[:12] + "-"
	for i := range l.cfg.Load.Public + l.cfg.Load.Private {
		t := &topic{name: prefix + strconv.Itoa(i+1), private: i >= l.cfg.Load.Public}
		visibility := "public"
		if t.private {
			visibility = "private"
		}
		event, err := l.sign(l.owner.key, nostr.KindCreateGroup, t.name, "", nostr.Tag{"name", t.name}, nostr.Tag{visibility})
		if err != nil {
			return err
		}
		if err := l.owner.publish(ctx, event); err != nil {
			return fmt.Errorf("make a channel: %w", err)
		}
		l.topics = append(l.topics, t)
	}
	if err := l.populate(ctx); err != nil {
		return err
	}
	l.topics = append(l.topics, &topic{name: global})
	for _, s := range l.people {
		l.subscribers.Go(func() { s.run(living) })
	}
	all := make(chan struct{})
	go func() {
		defer close(all)
		l.opened.Wait()
	}()
	select {
	case <-all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("not every subscriber could subscribe: %w", ctx.Err())
	}
}

// populate makes the subscribers, who do not run yet, and the members of private channels.
func (l *Load) populate(ctx context.Context) error {
	adding, ctx := errgroup.WithContext(ctx)
	adding.SetLimit(setUp)
	for i := range l.cfg.Load.Subscribers {
		t := l.topics[i%len(l.topics)]
		s, err := l.newSubscriber(i, t)
		if err != nil {
			return err
		}
		l.people = append(l.people, s)
		if !t.private {
			continue
		}
		if len(t.churners) < l.cfg.Load.Churners {
			t.churners = append(t.churners, s)
		}
		adding.Go(func() error { return l.change(ctx, t, s, true) })
	}
	return adding.Wait()
}

// change adds a reader to a private channel or removes it, and returns when the relay has said that it is so.
func (l *Load) change(ctx context.Context, t *topic, s *subscriber, member bool) error {
	kind := nostr.KindRemoveUser
	if member {
		kind = nostr.KindPutUser
	}
	// The content makes it another event than the last one of its sort, even in the same second.
	event, err := l.sign(l.owner.key, kind, t.name, strconv.FormatInt(l.published.Add(1), 10), nostr.Tag{"p", s.key.PubKey().String()})
	if err != nil {
		return err
	}
	if !member {
		s.member.Store(false)
	}
	acknowledged := l.cfg.Log.Changing(s.name, t.name, member)
	if err := l.owner.publish(ctx, event); err != nil {
		return fmt.Errorf("change a channel's members: %w", err)
	}
	acknowledged()
	if member {
		s.joined()
	}
	return nil
}

// sign makes an event of now. channel is its h tag unless it is empty.
func (l *Load) sign(key *nostr.SecretKey, kind nostr.Kind, channel, content string, tags ...nostr.Tag) (*nostr.Event, error) {
	event := &nostr.Event{Kind: kind, CreatedAt: time.Now().Unix(), Tags: nostr.Tags{}, Content: content}
	if channel != "" {
		event.Tags = append(event.Tags, nostr.Tag{"h", channel})
	}
	event.Tags = append(event.Tags, tags...)
	if err := event.Sign(key); err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return event, nil
}

// Abandoned returns how many events never had an OK.
func (l *Load) Abandoned() int { return int(l.abandoned.Load()) }

// Close ends all clients and returns when they have ended.
func (l *Load) Close() {
	if l.stop != nil {
		l.stop()
	}
	l.subscribers.Wait()
	for _, s := range l.people {
		s.forget()
	}
	l.owner.close()
}
