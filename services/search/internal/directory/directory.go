// Package directory finds communities by host and reads the access state of topics.
//
// It owns the rules of both questions: which names a host may stand for, and how long to wait for a
// replica that is behind. It keeps nothing: callers cache (gateways hosts, fan-out nodes access), because
// they know what they hold and hear of changes. It starts no goroutines and is safe for concurrent use.
package directory

import (
	"context"
	"errors"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
	"github.com/apiary-relay/apiary/services/search/internal/access"
	"github.com/apiary-relay/apiary/services/search/internal/store"
)

// Store reads from the database.
type Store interface {
	// CommunityByHost returns the community of the first of hosts that is registered.
	CommunityByHost(ctx context.Context, hosts []string) (store.Community, bool, error)
	// TopicAccess returns the access state of a topic as far as it matters for keys.
	TopicAccess(ctx context.Context, community tenant.ID, h string, keys []nostr.PubKey) (access.Topic, error)
}

// Directory answers from a Store.
type Directory struct {
	store Store
	wait  time.Duration
}

// New returns a directory that waits up to wait for a replica to catch up.
func New(s Store, wait time.Duration) *Directory { return &Directory{store: s, wait: wait} }

// errUnknown is the answer for a host without a community and for one that cannot be a host.
var errUnknown = fault.New(fault.NotFound, "no such community")

// Least is how new an answer must be that names a community. The zero value takes any.
type Least struct {
	// Community is the one.
	Community tenant.ID
	// Version is its least access version.
	Version uint64
}

// behind reports whether an answer is from before what somebody knows. A primary is never behind (access.Topic.Behind). An answer
// that names another community, or none, lets nobody into this one.
func (l Least) behind(c *store.Community) bool {
	return c.Standby && c.ID == l.Community && c.Version < l.Version
}

// Resolve returns the community of a host: of the exact authority if it is registered with its port, else
// of the name without it. An unknown or malformed host is NotFound, and so is that of an archived community. A replica that is
// behind is waited for, as by Access.
func (d *Directory) Resolve(ctx context.Context, host string, least Least) (store.Community, error) {
	c, err := d.find(ctx, host, least)
	if err == nil && c.Archived {
		return store.Community{}, errUnknown
	}
	return c, err
}

// Find is Resolve for operators, who see archived communities too, from whatever state is read.
func (d *Directory) Find(ctx context.Context, host string) (store.Community, error) {
	return d.find(ctx, host, Least{})
}

func (d *Directory) find(ctx context.Context, host string, least Least) (c store.Community, err error) {
	host, err = tenant.NormalizeHost(host)
	if err != nil {
		return store.Community{}, errUnknown
	}
	err = d.await(ctx, func() (bool, error) {
		var ok bool
		c, ok, err = d.store.CommunityByHost(ctx, tenant.Candidates(host))
		if err == nil && !ok {
			err = errUnknown
		}
		return err == nil && least.behind(&c), err
	})
	if err != nil {
		return store.Community{}, err
	}
	return c, nil
}

// Waits between looks at a replica that is behind.
const (
	firstLook = 10 * time.Millisecond
	lastLook  = 200 * time.Millisecond
)

var errBehind = errors.New("the database is behind what is asked for")

// Access returns the access state of a topic (the channel with this h value, the global topic if it is
// empty) from a snapshot at least as new as asked for. If only a replica can be asked and it does not
// catch up in time, the error is Overloaded. An h value that cannot name a channel names none.
func (d *Directory) Access(
	ctx context.Context, community tenant.ID, h string, keys []nostr.PubKey, least access.Least,
) (access.Topic, error) {
	if !access.IsChannel(h) {
		h = "" // no row has it
	}
	if h == "" {
		least.Channel = 0
	}
	var topic access.Topic
	err := d.await(ctx, func() (behind bool, err error) {
		topic, err = d.store.TopicAccess(ctx, community, h, keys)
		return err == nil && topic.Behind(least), err
	})
	if err != nil {
		return access.Topic{}, err
	}
	return topic, nil
}

// await looks until what is seen is not behind any more. When that takes too long the error is Overloaded.
func (d *Directory) await(ctx context.Context, look func() (behind bool, err error)) error {
	waiting, cancel := context.WithTimeoutCause(ctx, d.wait, errBehind)
	defer cancel()
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		behind, err := look()
		if err != nil || !behind {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-waiting.Done():
			timer.Stop()
			if cause := context.Cause(waiting); !errors.Is(cause, errBehind) {
				return cause
			}
			return fault.Wrap(fault.Overloaded, "", errBehind)
		}
	}
}
