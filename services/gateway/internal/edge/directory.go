package edge

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
	"github.com/apiary-relay/apiary/services/gateway/internal/told"
)

// Resolver finds the community of a host, and names in it; the generated client of search has it.
type Resolver interface {
	ResolveName(ctx context.Context, in *searchv1.ResolveNameRequest, opts ...grpc.CallOption) (
		*searchv1.ResolveNameResponse, error)
	ResolveCommunity(ctx context.Context, in *searchv1.ResolveCommunityRequest, opts ...grpc.CallOption) (
		*searchv1.ResolveCommunityResponse, error)
}

// ErrNoCommunity is returned for a host that belongs to no community.
var ErrNoCommunity = errors.New("no community has this host")

// Community is what the edge knows of a host's community; immutable.
type Community struct {
	session.Community
	// Name, Description and Icon are shown in NIP-11, and so is Owner, a public key in hexadecimal, which may
	// be empty.
	Name, Description, Icon, Owner string
	// MinPow is the least difficulty of an event in bits (NIP-13), 0 for none.
	MinPow int
	// Blocked are the networks whose clients are refused.
	Blocked []netip.Prefix
}

// DirectoryConfig bounds a Directory.
type DirectoryConfig struct {
	// TTL is how long an answer is used, also the answer that there is no community.
	TTL time.Duration
	// Hosts is how many hosts are remembered.
	Hosts int
	// CallTimeout bounds a question.
	CallTimeout time.Duration
}

// maxStrangers is how many hosts that are not known to have a community are asked about at a time. Anybody can
// make such hosts up, and search has other questions to answer.
const maxStrangers = 8

// Directory remembers which community a host has. Safe for concurrent use.
type Directory struct {
	cfg       DirectoryConfig
	resolver  Resolver
	told      *told.Log
	flight    singleflight.Group
	strangers *semaphore.Weighted
	names     *semaphore.Weighted

	mu    sync.Mutex
	hosts map[string]entry // also what has expired, until the room is needed
	// changes is how often something was forgotten: an answer from before the last one is not remembered.
	changes uint64
}

type entry struct {
	community *Community // nil: there is none
	until     time.Time
}

// NewDirectory returns an empty directory, which believes no answer that is older than what was told of a community.
func NewDirectory(cfg DirectoryConfig, r Resolver, heard *told.Log) *Directory {
	return &Directory{
		cfg: cfg, resolver: r, told: heard, strangers: semaphore.NewWeighted(maxStrangers), names: semaphore.NewWeighted(maxNames),
		hosts: make(map[string]entry),
	}
}

// Resolve returns the community of a normalised host, ErrNoCommunity if there is none, or another error
// when that cannot be found out now. Concurrent questions about one host are asked once; those about hosts
// that had no community so far wait for each other.
func (d *Directory) Resolve(ctx context.Context, host string) (*Community, error) {
	e, fresh, changes := d.cached(host)
	if fresh {
		return e.result()
	}
	stranger := e.community == nil
	answer := d.flight.DoChan(strconv.FormatUint(changes, 10)+" "+host, func() (any, error) {
		// The answer is for everybody who waits, so it must not end with the first of them.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.CallTimeout)
		defer cancel()
		if stranger {
			if err := d.strangers.Acquire(ctx, 1); err != nil {
				return nil, fault.Wrap(fault.Overloaded, "", err)
			}
			defer d.strangers.Release(1)
		}
		c, err := d.ask(ctx, host, e.community)
		if err != nil {
			return nil, err
		}
		return d.remember(host, c, changes), nil
	})
	select {
	case a := <-answer:
		if a.Err != nil {
			return nil, a.Err
		}
		return a.Val.(entry).result()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (e entry) result() (*Community, error) {
	if e.community == nil {
		return nil, ErrNoCommunity
	}
	return e.community, nil
}

// ask returns nil when there is no community. known is the one that the host had, nil if that is not known: mostly it still has
// it, and then the first answer is new enough.
func (d *Directory) ask(ctx context.Context, host string, known *Community) (*Community, error) {
	r, err := d.current(ctx, host, known)
	if fault.ReasonOf(err) == fault.NotFound {
		return nil, nil //nolint:nilnil // "there is none" is an answer, and cached as one
	}
	if err != nil {
		return nil, err
	}
	hosts := r.GetHosts()
	if !slices.Contains(hosts, host) {
		hosts = append(slices.Clip(hosts), host) // it was found without its port
	}
	blocked, err := ParseNetworks(r.GetBlockedNetworks())
	if err != nil {
		return nil, fmt.Errorf("parse blocked networks: %w", err)
	}
	return &Community{
		Community: session.Community{ID: r.GetCommunity(), UUID: r.GetUuid(), Host: host, Hosts: hosts, Closed: r.GetClosed()},
		Name:      r.GetName(), Description: r.GetDescription(), Icon: r.GetIcon(), Owner: hex.EncodeToString(r.GetOwner()),
		MinPow: int(r.GetMinPow()), Blocked: blocked,
	}, nil
}

// current asks until the answer is at least as new as what was told of the community that it names, or search vouches for it:
// what was told may be of a database whose last commits were lost. Every round asks for more than the one before, until ctx ends.
func (d *Directory) current(ctx context.Context, host string, known *Community) (*searchv1.ResolveCommunityResponse, error) {
	req := &searchv1.ResolveCommunityRequest{Host: host}
	if known != nil {
		req.Community, req.MinAclVersion = known.ID, d.told.Version(known.ID)
	}
	for {
		r, err := d.resolver.ResolveCommunity(ctx, req)
		if err != nil {
			return nil, err
		}
		least := d.told.Version(r.GetCommunity())
		if r.GetAclVersion() >= least || (req.GetCommunity() == r.GetCommunity() && req.GetMinAclVersion() >= least) {
			return r, nil
		}
		req = &searchv1.ResolveCommunityRequest{Host: host, Community: r.GetCommunity(), MinAclVersion: least}
	}
}

// cached returns what is remembered of a host, whether that is still good, and how often something was forgotten.
func (d *Directory) cached(host string) (e entry, fresh bool, changes uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e = d.hosts[host]
	return e, time.Now().Before(e.until), d.changes
}

// remember adds an answer, unless something was forgotten since it was asked for, and returns it. At the bound all hosts without
// a community go, and if there are none any other. Who has asked before holds the old answer, so one that says the same is not
// kept beside it.
func (d *Directory) remember(host string, c *Community, changes uint64) entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	old, known := d.hosts[host]
	if c != nil && reflect.DeepEqual(c, old.community) {
		c = old.community
	}
	e := entry{community: c, until: time.Now().Add(d.cfg.TTL)}
	if changes != d.changes {
		return e
	}
	if !known && len(d.hosts) >= d.cfg.Hosts {
		maps.DeleteFunc(d.hosts, func(_ string, old entry) bool { return old.community == nil })
		for h := range d.hosts {
			if len(d.hosts) < d.cfg.Hosts {
				break
			}
			delete(d.hosts, h)
		}
	}
	d.hosts[host] = e
	return e
}

// Len returns the number of hosts remembered.
func (d *Directory) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.hosts)
}
