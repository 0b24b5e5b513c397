// Package presence tells ingest which public keys are connected to this gateway, so that the cluster knows who is
// online. It owns the number of connections of each key; what a key announces goes another way, as an event.
//
// What is reported expires unless it is reported again, so a gateway that dies needs nobody to clear up after it. One
// that leaves on purpose reports no departures any more: its clients come back through another gateway, where they
// are present before the records here expire.
//
// Join and Leave are called by sessions and do not block. Run is one goroutine, which makes one call at a time, with
// a pause after each: however many clients come and go, ingest gets no more than that.
package presence

import (
	"container/list"
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

// Client is what the package calls of ingest; the generated client has it.
type Client interface {
	ReportSessions(ctx context.Context, in *ingestv1.ReportSessionsRequest, opts ...grpc.CallOption) (
		*ingestv1.ReportSessionsResponse, error)
}

// Config bounds the reports.
type Config struct {
	// Gateway identifies this process.
	Gateway string
	// Page is how many keys one report names, Pause the time between two.
	Page  int
	Pause time.Duration
	// Retry is the time after a report that failed, Timeout how long one may take.
	Retry, Timeout time.Duration
	// Refresh is when a key is reported again, until ingest has said for how long it remembers: then it is a third
	// of that.
	Refresh time.Duration
}

// refreshesPerTTL is how often a key is reported while ingest remembers it: two reports may fail.
const refreshesPerTTL = 3

// userKey is a public key in a community.
type userKey struct {
	community int64
	pubkey    nostr.PubKey
}

// user is a key that is connected, or that ingest may believe to be.
//
//	[changed] ──report──▶ [under way] ──answered──▶ [reported] ──a third of the TTL, or a change──▶ [changed]
//	    ▲                      └──failed, or changed meanwhile──▶ [changed]
//	    └── the first connection. Forgotten: when its departure was reported, or need not be.
type user struct {
	userKey
	conns int
	// list is changed or reported, place where in it; nil while a report is under way.
	list  *list.List
	place *list.Element
	// again is set when it has changed while a report is under way.
	again bool
	// known is set when ingest may have a record of it; at is when it was reported last.
	known bool
	at    time.Time
}

// Roster is the set of connected keys. It is bounded by the connections.
type Roster struct {
	cfg    Config
	client Client
	log    *slog.Logger

	mu       sync.Mutex
	users    map[userKey]*user
	changed  list.List // of *user, in order of the change
	reported list.List // of *user, by the time of the last report
	refresh  time.Duration
	withheld bool
	wake     chan struct{} // has an element when something has changed
}

// New returns an empty roster; Run makes it report.
func New(cfg Config, client Client, log *slog.Logger) *Roster {
	return &Roster{
		cfg: cfg, client: client, log: log, users: make(map[userKey]*user), refresh: cfg.Refresh, wake: make(chan struct{}, 1),
	}
}

// Join notes that a connection has authenticated a key. Leave has to be called when it has ended.
func (r *Roster) Join(community int64, pubkey nostr.PubKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := userKey{community, pubkey}
	u := r.users[k]
	if u == nil {
		u = &user{userKey: k, list: &r.changed}
		u.place = r.changed.PushBack(u)
		r.users[k] = u
	}
	if u.conns++; u.conns == 1 {
		r.changeLocked(u)
	}
}

// Leave undoes one Join.
func (r *Roster) Leave(community int64, pubkey nostr.PubKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.users[userKey{community, pubkey}]
	if u == nil || u.conns == 0 {
		return
	}
	if u.conns--; u.conns == 0 {
		r.changeLocked(u)
	}
}

// Withhold keeps departures from now on from ingest, because it is the gateway that leaves.
func (r *Roster) Withhold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.withheld = true
}

// changeLocked has a key reported. Called with mu held.
func (r *Roster) changeLocked(u *user) {
	if u.list == nil {
		u.again = true
		return
	}
	if u.list == &r.reported {
		r.moveLocked(u, &r.changed)
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// moveLocked puts a user at the end of a list, or in none. Called with mu held.
func (r *Roster) moveLocked(u *user, to *list.List) {
	if u.list != nil {
		u.list.Remove(u.place)
	}
	u.list, u.place = to, nil
	if to != nil {
		u.place = to.PushBack(u)
	}
}

// Run reports until ctx ends.
func (r *Roster) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
		timer.Reset(r.report(ctx))
	}
}

// report makes one report, if there is something to report, and returns when it is time for the next one.
func (r *Roster) report(ctx context.Context) time.Duration {
	page, next := r.take(time.Now())
	if len(page) == 0 {
		return next
	}
	sessions := make([]*ingestv1.Session, len(page))
	for i, e := range page {
		sessions[i] = &ingestv1.Session{Community: e.community, Pubkey: e.pubkey[:], Gone: e.gone}
	}
	call, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	resp, err := r.client.ReportSessions(call, &ingestv1.ReportSessionsRequest{Gateway: r.cfg.Gateway, Sessions: sessions})
	if err != nil && ctx.Err() == nil {
		r.log.LogAttrs(ctx, slog.LevelWarn, "connected keys not reported", slog.Int("keys", len(page)), slog.Any(telemetry.KeyError, err))
	}
	r.settle(page, err == nil, time.Now(), resp.GetTtl().AsDuration())
	pause := r.cfg.Pause
	if err != nil {
		pause = r.cfg.Retry
	}
	select { // without wake: what changes meanwhile goes together
	case <-ctx.Done():
	case <-time.After(pause):
	}
	return 0
}

// entry is what a report says of a user.
type entry struct {
	*user
	gone bool
}

// take takes the users for the next report out of their lists: those that have changed, and those whose last report
// is long ago. Without any, next is when there will be some.
func (r *Roster) take(now time.Time) (page []entry, next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := r.changed.Front(); e != nil && len(page) < r.cfg.Page; e = r.changed.Front() {
		u := userOf(e)
		r.moveLocked(u, nil)
		if gone := u.conns == 0; !gone || (u.known && !r.withheld) {
			page = append(page, entry{u, gone})
		} else {
			delete(r.users, u.userKey)
		}
	}
	for e := r.reported.Front(); e != nil && len(page) < r.cfg.Page; e = r.reported.Front() {
		u := userOf(e)
		if wait := u.at.Add(r.refresh).Sub(now); wait > 0 {
			return page, wait
		}
		r.moveLocked(u, nil)
		page = append(page, entry{u, false})
	}
	return page, r.refresh
}

// settle puts users back after their report. A failed one may have been recorded nevertheless.
func (r *Roster) settle(page []entry, ok bool, now time.Time, ttl time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ok && ttl > 0 {
		r.refresh = ttl / refreshesPerTTL
	}
	for _, e := range page {
		u, again := e.user, e.again
		u.again, u.at, u.known = false, now, true
		switch {
		case !ok || again:
			r.moveLocked(u, &r.changed)
		case e.gone:
			delete(r.users, u.userKey)
		default:
			r.moveLocked(u, &r.reported)
		}
	}
}

func userOf(e *list.Element) *user {
	u, _ := e.Value.(*user) // nothing else is in the lists
	return u
}
