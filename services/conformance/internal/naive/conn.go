package naive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/model"
)

// conn is a client's connection.
type conn struct {
	relay *Relay
	ws    *websocket.Conn
	ctx   context.Context
	host  string // that the client connected to

	// Guarded by the relay's mu.
	challenge string
	keys      map[nostr.PubKey]bool
	subs      map[string][]model.Filter
}

// serve reads frames until the connection ends.
func (c *conn) serve() {
	r := c.relay
	defer c.ws.CloseNow()
	r.mu.Lock()
	r.lastID++
	c.challenge = fmt.Sprintf("challenge-%d", r.lastID)
	r.conns[c] = true
	c.send(client.LabelAuth, c.challenge)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.conns, c)
	}()
	for {
		kind, raw, err := c.ws.Read(c.ctx)
		if err != nil {
			return
		}
		r.mu.Lock()
		if limit := r.opts.Limitation.MaxMessageLength; kind != websocket.MessageText || (limit != nil && int64(len(raw)) > *limit && !r.fault(AnyLength)) {
			c.send(client.LabelNotice, "invalid: too long, or not text")
		} else {
			c.message(raw)
		}
		r.mu.Unlock()
	}
}

// send sends a frame. Called with the relay's mu held.
func (c *conn) send(elements ...any) {
	frame, err := json.Marshal(elements)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
	defer cancel()
	_ = c.ws.Write(ctx, websocket.MessageText, frame) // who does not read has left
}

// message does what a frame asks for. Called with the relay's mu held.
func (c *conn) message(raw []byte) {
	var elements []json.RawMessage
	var label, id string
	if json.Unmarshal(raw, &elements) != nil || len(elements) < 2 || json.Unmarshal(elements[0], &label) != nil {
		c.send(client.LabelNotice, "invalid: no message")
		return
	}
	switch label {
	case client.LabelEvent, client.LabelAuth:
		c.submit(label, elements[1])
		return
	case "REQ", "COUNT", "CLOSE", "NEG-OPEN", "NEG-CLOSE":
	default:
		c.send(client.LabelNotice, "invalid: unknown label")
		return
	}
	if json.Unmarshal(elements[1], &id) != nil || id == "" || string(elements[1]) == "null" || c.tooLong(id) {
		c.send(client.LabelNotice, "invalid: no subscription id")
		return
	}
	switch label {
	case "CLOSE":
		if !c.relay.fault(CloseIgnored) {
			delete(c.subs, id)
		}
	case "NEG-OPEN":
		c.negOpen(id, elements[2:])
	case "REQ", "COUNT":
		c.ask(label, id, elements[2:])
	}
}

func (c *conn) tooLong(id string) bool {
	limit := c.relay.opts.Limitation.MaxSubIDLength
	return limit != nil && int64(len(id)) > *limit
}

// ask answers a REQ or COUNT.
func (c *conn) ask(label, id string, raw []json.RawMessage) {
	r := c.relay
	refuse := func(text string) {
		switch {
		case r.fault(NoticeForREQ):
			c.send(client.LabelNotice, text)
		case r.fault(BareRefusals):
			c.send(client.LabelClosed, id, "no")
		default:
			c.send(client.LabelClosed, id, text)
		}
	}
	if r.opts.Locked && len(c.keys) == 0 {
		refuse("auth-required: who are you?")
		return
	}
	filters, err := decodeFilters(raw)
	if err != nil {
		refuse("invalid: " + err.Error())
		return
	}
	if limit := r.opts.Limitation.MaxFilters; limit != nil && int64(len(filters)) > *limit {
		refuse("invalid: too many filters")
		return
	}
	if label == "COUNT" {
		c.count(id, filters)
		return
	}
	if limit := r.opts.Limitation.MaxSubscriptions; limit != nil && c.subs[id] == nil && int64(len(c.subs)) >= *limit {
		refuse("error: too many subscriptions")
		return
	}
	sent := map[nostr.ID]bool{}
	for i := range filters {
		for _, e := range r.query(c, &filters[i]) {
			if !sent[e.ID] {
				sent[e.ID] = true
				c.send(client.LabelEvent, id, json.RawMessage(e.AppendJSON(nil)))
			}
		}
	}
	c.send(client.LabelEOSE, id)
	if r.fault(ReplaceAdds) {
		filters = append(filters, c.subs[id]...)
	}
	if !r.fault(NoLive) {
		c.subs[id] = filters
	}
}

// decodeFilters reads filters strictly.
func decodeFilters(raw []json.RawMessage) ([]model.Filter, error) {
	if len(raw) == 0 {
		return nil, errors.New("no filter")
	}
	filters := make([]model.Filter, len(raw))
	for i := range raw {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(raw[i], &fields); err != nil || fields == nil {
			return nil, errors.New("a filter must be an object")
		}
		if err := decodeFilter(fields, &filters[i]); err != nil {
			return nil, err
		}
	}
	return filters, nil
}

func decodeFilter(fields map[string]json.RawMessage, f *model.Filter) error {
	f.Tags = map[string][]string{}
	for key, value := range fields {
		var err error
		switch {
		case key == "ids":
			f.IDs, err = list[string](value)
		case key == "authors":
			f.Authors, err = list[string](value)
		case key == "kinds":
			f.Kinds, err = list[nostr.Kind](value)
		case key == "since":
			err = json.Unmarshal(value, &f.Since)
		case key == "until":
			err = json.Unmarshal(value, &f.Until)
		case key == "limit":
			err = json.Unmarshal(value, &f.Limit)
		case key == "search":
			err = json.Unmarshal(value, &f.Search)
		case len(key) == 2 && key[0] == '#':
			f.Tags[key[1:]], err = list[string](value)
		default:
			err = errors.New("unknown key")
		}
		if err != nil {
			return errors.New("the filter's " + key)
		}
	}
	return nil
}

// list reads a list that holds no null; an empty one is not nil.
func list[T any](raw json.RawMessage) ([]T, error) {
	var pointers []*T
	if err := json.Unmarshal(raw, &pointers); err != nil {
		return nil, err
	}
	if pointers == nil {
		return nil, errors.New("null")
	}
	values := []T{}
	for _, p := range pointers {
		if p == nil {
			return nil, errors.New("null")
		}
		values = append(values, *p)
	}
	return values, nil
}

// authenticate judges the answer to the challenge (NIP-42).
func (c *conn) authenticate(e *nostr.Event) string {
	r := c.relay
	challenge, _ := e.Tags.First("challenge")
	relay, _ := e.Tags.First("relay")
	u, err := url.Parse(relay)
	off := time.Now().Unix() - e.CreatedAt
	switch {
	case e.Kind != nostr.KindAuth:
		return "invalid: kind"
	case (off < -600 || off > 600) && !r.fault(AnyTime):
		return "invalid: time"
	case challenge != c.challenge && !r.fault(AnyChallenge):
		return "invalid: challenge"
	case (err != nil || !strings.EqualFold(u.Host, c.host)) && !r.fault(AnyRelay):
		return "invalid: relay"
	}
	if r.fault(OneKey) {
		clear(c.keys)
	}
	c.keys[e.PubKey] = true
	return ""
}
