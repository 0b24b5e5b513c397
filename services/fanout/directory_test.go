package fanout

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/nostr"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// directory answers CheckAccess. Keys may read every topic unless denied.
type directory struct {
	mu      sync.Mutex
	at      map[string]uint64 // channel versions; the community's under ""
	denied  map[string]map[nostr.PubKey]bool
	turns   map[string]map[nostr.PubKey]turn
	mods    map[nostr.PubKey]bool
	failing error
	calls   int
	asked   []string
	gate    chan struct{} // when set, answers wait for it
	held    int           // questions that came to the gate
}

// turn is when what a key may do turns around by itself, without a new version.
type turn struct {
	at      int64
	allowed bool // before it
}

func newDirectory() *directory {
	return &directory{
		at: map[string]uint64{}, denied: map[string]map[nostr.PubKey]bool{}, mods: map[nostr.PubKey]bool{},
		turns: map[string]map[nostr.PubKey]turn{},
	}
}

// turnAt lets a key read a channel up to a time, or from one on.
func (d *directory) turnAt(channel string, key nostr.PubKey, t turn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.turns[channel] == nil {
		d.turns[channel] = map[nostr.PubKey]turn{}
	}
	d.turns[channel][key] = t
}

// revoke denies a key a channel and returns the channel's new version.
func (d *directory) revoke(channel string, key nostr.PubKey) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.denied[channel] == nil {
		d.denied[channel] = map[nostr.PubKey]bool{}
	}
	d.denied[channel][key] = true
	d.at[channel]++
	return d.at[channel]
}

// remove deletes a channel: it has no version, and nobody may read it.
func (d *directory) remove(channel string, readers ...nostr.PubKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.at, channel)
	d.denied[channel] = map[nostr.PubKey]bool{}
	for _, key := range readers {
		d.denied[channel][key] = true
	}
}

// shut makes answers wait until the function that it returns is called.
func (d *directory) shut() (open func()) {
	gate := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gate, d.held = gate, 0
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.gate = nil
		close(gate)
	}
}

// waiting returns how many questions came to the gate since it was shut.
func (d *directory) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held
}

func (d *directory) admit(channel string, key nostr.PubKey) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.denied[channel], key)
	d.at[channel]++
	return d.at[channel]
}

// promote makes a key a moderator and returns the community's new version, demote takes it back.
func (d *directory) promote(key nostr.PubKey) uint64 { return d.setModerator(key, true) }
func (d *directory) demote(key nostr.PubKey) uint64  { return d.setModerator(key, false) }

func (d *directory) setModerator(key nostr.PubKey, is bool) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mods[key] = is
	d.at[""]++
	return d.at[""]
}

func (d *directory) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing = err
}

func (d *directory) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

func (d *directory) CheckAccess(ctx context.Context, in *searchv1.CheckAccessRequest, _ ...grpc.CallOption) (*searchv1.CheckAccessResponse, error) {
	d.mu.Lock()
	gate := d.gate
	if gate != nil {
		d.held++
	}
	d.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	d.asked = append(d.asked, in.GetChannel())
	if d.failing != nil {
		return nil, d.failing
	}
	out := &searchv1.CheckAccessResponse{CommunityAclVersion: d.at[""]}
	if in.GetChannel() != "" {
		out.ChannelAclVersion = d.at[in.GetChannel()]
	}
	for _, k := range in.GetPubkeys() {
		allowed, until := !d.denied[in.GetChannel()][nostr.PubKey(k)], int64(0)
		if t, ok := d.turns[in.GetChannel()][nostr.PubKey(k)]; ok && in.GetMinTime() < t.at {
			allowed, until = t.allowed, t.at
		} else if ok {
			allowed = !t.allowed
		}
		out.Allowed, out.Until = append(out.Allowed, allowed), append(out.Until, until)
		out.Moderator = append(out.Moderator, d.mods[nostr.PubKey(k)])
	}
	return out, nil
}

var errDown = errors.New("search is down")
