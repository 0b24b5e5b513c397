package naive

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/model"
)

// Options are what a relay may decide, and what it does wrong.
type Options struct {
	// NIPs are claimed. What is not claimed is done nevertheless.
	NIPs []int
	// Limitation is what NIP-11 says, and what is enforced.
	Limitation client.Limitation
	// Locked demands authentication.
	Locked bool
	// Faults are the things that the relay does wrong.
	Faults []Fault
}

// Relay is the relay, an http.Handler.
type Relay struct {
	opts Options
	self *nostr.SecretKey

	mu       sync.Mutex
	conns    map[*conn]bool
	events   []*nostr.Event
	deleted  map[string]bool        // ids, and "id pubkey" for ids that are not here
	below    map[string]int64       // addresses: deleted up to this second
	vanished map[nostr.PubKey]int64 // authors: gone up to this second
	lastID   int                    // of challenges
}

// New returns an empty relay.
func New(self *nostr.SecretKey, opts Options) *Relay {
	return &Relay{
		opts: opts, self: self, conns: map[*conn]bool{},
		deleted: map[string]bool{}, below: map[string]int64{}, vanished: map[nostr.PubKey]int64{},
	}
}

// fault reports whether the relay does this wrong.
func (r *Relay) fault(f Fault) bool { return slices.Contains(r.opts.Faults, f) }

// ServeHTTP implements http.Handler.
func (r *Relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !r.fault(NoCORS) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Allow-Headers", "*")
		w.Header().Set("Access-Control-Allow-Methods", "GET, OPTIONS")
	}
	switch {
	case req.Header.Get("Upgrade") != "":
		r.accept(w, req)
	case req.Method == http.MethodPost && !r.fault(ManagedByAll):
		w.WriteHeader(http.StatusUnauthorized)
	case req.Header.Get("Accept") == client.InfoType:
		w.Header().Set("Content-Type", client.InfoType)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"name": "naive", "supported_nips": r.opts.NIPs, "self": r.self.PubKey(), "limitation": r.limitation(),
		})
	}
}

// limitation is the object of NIP-11, without what is not said.
func (r *Relay) limitation() map[string]any {
	var said map[string]any
	raw, _ := json.Marshal(r.opts.Limitation) // a struct of numbers
	_ = json.Unmarshal(raw, &said)
	for name, value := range said {
		if value == nil {
			delete(said, name)
		}
	}
	return said
}

func (r *Relay) accept(w http.ResponseWriter, req *http.Request) {
	ws, err := websocket.Accept(w, req, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	ws.SetReadLimit(16 << 20)
	c := &conn{relay: r, ws: ws, ctx: req.Context(), host: req.Host, subs: map[string][]model.Filter{}, keys: map[nostr.PubKey]bool{}}
	c.serve() //nolint:contextcheck // a connection has its context in it
}

// deliver sends an event to the subscriptions that it matches. Called with mu held.
func (r *Relay) deliver(e *nostr.Event) {
	for c := range r.conns {
		for id, filters := range c.subs {
			if !c.mayRead(e) {
				continue
			}
			for i := range filters {
				if filters[i].Match(e) {
					c.send(client.LabelEvent, id, json.RawMessage(e.AppendJSON(nil)))
					if !r.fault(DeliverTwice) {
						break
					}
				}
			}
		}
	}
}

// query returns the stored answer to one filter for a reader. Called with mu held.
func (r *Relay) query(c *conn, f *model.Filter) []*nostr.Event {
	var found []*nostr.Event
	for _, e := range r.events {
		if r.matches(f, e) && c.mayRead(e) && !r.expired(e) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, model.Order)
	switch {
	case r.fault(OldestFirst):
		slices.Reverse(found)
	case r.fault(HighestIDFirst):
		slices.SortFunc(found, func(a, b *nostr.Event) int {
			if a.CreatedAt == b.CreatedAt {
				return -model.Order(a, b)
			}
			return model.Order(a, b)
		})
	}
	most := len(found)
	if limit := r.opts.Limitation.MaxLimit; limit != nil {
		most = min(most, int(*limit))
	}
	if f.Limit != nil && !r.fault(NoLimit) {
		most = min(most, max(0, *f.Limit))
	}
	if r.fault(LimitTakesOldest) {
		return found[len(found)-most:]
	}
	return found[:most]
}

// matches is the filter's Match and the search, with faults.
func (r *Relay) matches(f *model.Filter, e *nostr.Event) bool {
	g := *f
	if r.fault(SinceExclusive) && g.Since != nil {
		g.Since = new(*g.Since + 1)
	}
	if r.fault(UntilExclusive) && g.Until != nil {
		g.Until = new(*g.Until - 1)
	}
	if r.fault(EmptyListIsAll) && len(g.Kinds) == 0 {
		g.Kinds = nil
	}
	if r.fault(IDPrefixes) && len(g.IDs) > 0 {
		if !slices.ContainsFunc(g.IDs, func(id string) bool { return strings.HasPrefix(e.ID.String(), id) }) {
			return false
		}
		g.IDs = nil
	}
	if r.fault(AnyTagValue) {
		e = spread(e)
	}
	return g.Match(e) && (r.fault(NoSearch) || searched(g.Search, e))
}

// spread returns the event with a tag for every value of a tag.
func spread(e *nostr.Event) *nostr.Event {
	copied := *e
	for _, t := range e.Tags {
		for i := 2; i < len(t); i++ {
			copied.Tags = append(copied.Tags[:len(copied.Tags):len(copied.Tags)], nostr.Tag{t[0], t[i]})
		}
	}
	return &copied
}

// searched reports whether all words of a NIP-50 query are in the content.
func searched(query string, e *nostr.Event) bool {
	for _, word := range strings.Fields(strings.ToLower(query)) {
		if !strings.Contains(word, ":") && !strings.Contains(strings.ToLower(e.Content), word) {
			return false
		}
	}
	return true
}
