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

// Resolve returns the community of a host: of the exact authority if it is registered with its port, else
// of the name without it. An unknown or malformed host is NotFound, and so is that of an archived community.
func (d *Directory) Resolve(ctx context.Context, host string) (store.Community, error) {
	c, err := d.Find(ctx, host)
	if err == nil && c.Archived {
		return store.Community{}, errUnknown
	}
	return c, err
}

// Find is Resolve for operators, who see archived communities too.
func (d *Directory) Find(ctx context.Context, host string) (store.Community, error) {
	host, err := tenant.NormalizeHost(host)
	if err != nil {
		return store.Community{}, errUnknown
	}
	c, ok, err := d.store.CommunityByHost(ctx, tenant.Candidates(host))
	switch {
	case err != nil:
		return store.Community{}, err
	case !ok:
		return store.Community{}, errUnknown
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
	waiting, cancel := context.WithTimeoutCause(ctx, d.wait, errBehind)
	defer cancel()
	for look := firstLook; ; look = min(2*look, lastLook) {
		topic, err := d.store.TopicAccess(ctx, community, h, keys)
		if err != nil || !topic.Behind(least) {
			return topic, err
		}
		timer := time.NewTimer(look)
		select {
		case <-timer.C:
		case <-waiting.Done():
			timer.Stop()
			if cause := context.Cause(waiting); !errors.Is(cause, errBehind) {
				return access.Topic{}, cause
			}
			return access.Topic{}, fault.Wrap(fault.Overloaded, "", errBehind)
		}
	}
}
