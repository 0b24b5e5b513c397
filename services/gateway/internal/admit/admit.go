// Package admit bounds what one client may make the gateway and those behind it do in a time, so that who floods
// is held back and others are not. It owns the rates and their buckets; the session says what they are used for
// and answers, cork.Conn waits. It must never look at what a client says.
//
// An agent (NIP-OA) has quotas of its own besides, over all its connections and calls, and shares another one with the other
// agents of its owner: keys cost nothing, so who has many agents has no more for it.
//
// Three rates are a connection's own: events, requests (REQ and COUNT) and bytes read. The first two are a key's as well
// that calls over HTTP, where there is no connection to count on. The fourth is of an
// address, over all its connections: offences, that is, what no well-behaved client sends often, such as broken
// frames and forged signatures, which cost us more than the sender. Only who offends is held back for it, so an
// office or a proxy behind one address does not suffer for one of its clients. Nobody escapes it by connecting
// anew. So is the fifth, of attempts to join with an invite code: keys cost nothing, so who guesses has a new one each time.
//
// The sixth is of an address as well, and of bytes: what its connections send beyond what each may send anyway, the modest
// rate, shares one rate (committed and excess rates, as in RFC 4115). So a flood from one address has one connection's
// worth of us however many it opens, and its neighbours, who send little, do not wait for it.
//
// A Gate is safe for concurrent use, and so is a Client, but for Read. There are no goroutines.
package admit

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/apiary-relay/apiary/pkg/limit"
)

// Rate is so many a second in the long run, and Burst at once. A PerSecond of 0 is no limit.
type Rate struct{ PerSecond, Burst int }

// Config are the rates.
type Config struct {
	// Events, Requests and Bytes are of one connection.
	Events, Requests, Bytes Rate
	// Offences are of one address; of IPv6 of a network of 64 bits, which is one subscriber's.
	Offences Rate
	// Excess is of the bytes that all connections of one address send beyond the modest rate of each.
	Excess Rate
	// AgentEvents and AgentCalls are how many events that are kept, and other calls over HTTP, an agent may send in a
	// minute; OwnerEvents how many events all agents of one owner. 0 is no limit.
	AgentEvents, AgentCalls, OwnerEvents int
}

// modest is what a connection may send, in bytes, without a share of its address's: more than anybody types, and after it was quiet
// a large event at once. It begins with what is earned in a second, so that to connect anew is worth no more than to wait.
var modest = Rate{PerSecond: 32 << 10, Burst: 256 << 10}

const (
	// addresses is of how many addresses offences are remembered.
	addresses = 1 << 16
	// callers is of how many keys calls are remembered.
	callers = 1 << 16
	// longest is the longest single wait; then the client is heard again, and may be held back again.
	longest = time.Second
	// claimsPerMinute is how often clients of one address may try to join with an invite code, at once as well: an office
	// that moves in does not notice.
	claimsPerMinute = 60
	// attestationsPerMinute is how often ingest is asked to remember whose agents clients of one address are, at once as
	// well: what is known needs no asking.
	attestationsPerMinute = 60
)

// Gate is shared by all connections.
type Gate struct {
	cfg              Config
	offences, claims *limit.Keyed[netip.Prefix]
	excess           *limit.Keyed[netip.Prefix]
	attestations     *limit.Keyed[netip.Prefix]
	events, requests *limit.Keyed[Caller]

	agentEvents, agentCalls, ownerEvents *limit.Keyed[Caller]
}

// Agent is an agent's key and its owner's (NIP-OA).
type Agent struct {
	// Community is the surrogate key of the tenant.
	Community int64
	// Key and Owner are the public keys.
	Key, Owner [32]byte
}

// Caller is who calls over HTTP.
type Caller struct {
	// Community is the surrogate key of the tenant.
	Community int64
	// Key is the public key that signs the calls.
	Key [32]byte
}

// New returns a gate.
func New(cfg Config) *Gate {
	keyed := func(r Rate) *limit.Keyed[Caller] {
		return limit.NewKeyed[Caller](float64(r.PerSecond), r.Burst, callers)
	}
	minutely := func(n int) *limit.Keyed[Caller] {
		return limit.NewKeyed[Caller](float64(n)/time.Minute.Seconds(), n, callers)
	}
	return &Gate{
		agentEvents: minutely(cfg.AgentEvents), agentCalls: minutely(cfg.AgentCalls), ownerEvents: minutely(cfg.OwnerEvents),

		cfg:          cfg,
		claims:       limit.NewKeyed[netip.Prefix](claimsPerMinute/time.Minute.Seconds(), claimsPerMinute, addresses),
		attestations: limit.NewKeyed[netip.Prefix](attestationsPerMinute/time.Minute.Seconds(), attestationsPerMinute, addresses),
		offences:     limit.NewKeyed[netip.Prefix](float64(cfg.Offences.PerSecond), cfg.Offences.Burst, addresses),
		excess:       limit.NewKeyed[netip.Prefix](float64(cfg.Excess.PerSecond), cfg.Excess.Burst, addresses),
		events:       keyed(cfg.Events), requests: keyed(cfg.Requests),
	}
}

// CallEvent asks for an event that is submitted over HTTP; wait is how long to wait with the next one if it is not ok.
func (g *Gate) CallEvent(c Caller, now time.Time) (wait time.Duration, ok bool) {
	return g.events.Allow(c, 1, now)
}

// CallRequest asks for any other call over HTTP, as CallEvent does.
func (g *Gate) CallRequest(c Caller, now time.Time) (wait time.Duration, ok bool) {
	return g.requests.Allow(c, 1, now)
}

// AgentCall asks for a call over HTTP by an agent, as CallEvent does.
func (g *Gate) AgentCall(a Agent, now time.Time) (wait time.Duration, ok bool) {
	return g.agentCalls.Allow(Caller{a.Community, a.Key}, 1, now)
}

// Client is one connection's account.
type Client struct {
	gate                    *Gate
	addr                    netip.Addr
	network                 netip.Prefix
	events, requests, bytes *limit.Bucket
	modest                  *limit.Bucket
	hold                    atomic.Int64 // a time.Duration: for what was done since the last Read
}

// Client opens the account of a connection that came from addr now; connections whose address is not known share one.
func (g *Gate) Client(addr netip.Addr, now time.Time) *Client {
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	network, _ := addr.Prefix(bits) // the zero Prefix for the zero Addr
	bucket := func(r Rate) *limit.Bucket { return limit.NewBucket(float64(r.PerSecond), r.Burst) }
	c := &Client{
		gate: g, addr: addr, network: network, events: bucket(g.cfg.Events), requests: bucket(g.cfg.Requests), bytes: bucket(g.cfg.Bytes),
		modest: bucket(modest),
	}
	c.modest.Spend(modest.Burst-modest.PerSecond, now)
	return c
}

// Addr returns the client's address, the zero Addr if it is not known.
func (c *Client) Addr() netip.Addr { return c.addr }

// Network is what the rates of an address are counted by: the address, or of IPv6 a network of 64 bits; the zero Prefix if
// it is not known.
func (c *Client) Network() netip.Prefix { return c.network }

// eventUnit is the size of an event that counts as one; larger ones count as several, as they cost so much more.
const eventUnit = 4 << 10

// Event asks for an EVENT of size bytes; wait is how long to wait with the next one if it is not ok. Who asks too often is read
// more slowly besides.
func (c *Client) Event(size int, now time.Time) (wait time.Duration, ok bool) {
	// What counts more than the whole burst waits for all of it.
	return c.ask(c.events, min(1+size/eventUnit, max(c.gate.cfg.Events.Burst, 1)), now)
}

// AgentEvent asks for an event by an agent that is kept; wait is how long to wait with the next one if it is not ok.
func (c *Client) AgentEvent(a Agent, now time.Time) (wait time.Duration, ok bool) {
	if wait, ok = c.gate.agentEvents.Allow(Caller{a.Community, a.Key}, 1, now); !ok {
		return wait, false
	}
	return c.gate.ownerEvents.Allow(Caller{a.Community, a.Owner}, 1, now)
}

// Request asks for a REQ or a COUNT, as Event does.
func (c *Client) Request(now time.Time) (wait time.Duration, ok bool) {
	return c.ask(c.requests, 1, now)
}

func (c *Client) ask(b *limit.Bucket, n int, now time.Time) (time.Duration, bool) {
	wait, ok := b.Allow(n, now)
	if !ok {
		c.holdBack(wait)
	}
	return wait, ok
}

// Offend notes an offence.
func (c *Client) Offend(now time.Time) {
	c.holdBack(c.gate.offences.Spend(c.network, 1, now))
}

// Claim asks for an attempt to join with an invite code; all clients of the address share what there is.
func (c *Client) Claim(now time.Time) (ok bool) {
	_, ok = c.gate.claims.Allow(c.network, 1, now)
	return ok
}

// Attest asks for an attestation to be passed on; all clients of the address share what there is.
func (c *Client) Attest(now time.Time) (ok bool) {
	_, ok = c.gate.attestations.Allow(c.network, 1, now)
	return ok
}

func (c *Client) holdBack(d time.Duration) {
	for {
		old := c.hold.Load()
		if int64(d) <= old || c.hold.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// Read notes n bytes read and returns how long not to read any further, at most a second. It is called by the
// reader of the connection only.
func (c *Client) Read(n int, now time.Time) time.Duration {
	debt := c.bytes.Spend(n, now)
	if _, ok := c.modest.Allow(n, now); !ok {
		debt = max(debt, c.gate.excess.Spend(c.network, n, now))
	}
	return min(max(debt, time.Duration(c.hold.Swap(0))), longest)
}
