package crowd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

// Dialect is how clients speak to a server.
type Dialect interface {
	// Enter does what the server asks for before anything else.
	Enter(s *Socket) error
	// Found makes the topics, where they have to be made before anybody can subscribe to them.
	Found(s *Socket, topics []string) error
	// Subscribe subscribes to topics and waits until the server has said that it did.
	Subscribe(s *Socket, topics []string) error
	// Message is the n-th message that s publishes, to topic; its payload holds Marker(n). Of about the same size in
	// every dialect.
	Message(s *Socket, n int, topic string) ([]byte, error)
	// Refused is an error if payload refuses a Message.
	Refused(payload []byte) error
	// Idle answers what the server sends to see whether somebody is there, if it is that.
	Idle(s *Socket, payload []byte) error
}

// Marker is what the payload of the n-th message holds, up to 10⁸ of them.
func Marker(n int) string { return fmt.Sprintf("%s%08d", markerHead, n) }

const (
	markerHead   = "#bench-"
	markerDigits = 8
)

// text is what people write, after a marker.
const text = "the quick brown fox jumps over the lazy dog, and the dog does not mind at all"

// Nostr is NIP-01, and NIP-42 if the relay begins with a challenge.
type Nostr struct {
	// Auth is whether it does.
	Auth bool
	// Channels is whether topics are channels (NIP-29), each a topic of its own to the relay; otherwise they are `t` tags.
	Channels bool
}

// Enter implements Dialect.
func (d Nostr) Enter(s *Socket) error {
	secret, err := nostr.GenerateSecretKey()
	if err != nil {
		return err
	}
	s.secret = secret
	if !d.Auth {
		return nil
	}
	challenge, err := frame(s)
	if err != nil {
		return err
	}
	proof := nostr.Event{
		Kind: nostr.KindAuth, CreatedAt: time.Now().Unix(),
		Tags: nostr.Tags{{"relay", strings.TrimSuffix(s.url, "/")}, {"challenge", challenge.Message}},
	}
	if err := proof.Sign(secret); err != nil {
		return err
	}
	if err := s.Write(wire.AppendClientAuth(nil, proof.AppendJSON(nil))); err != nil {
		return err
	}
	ok, err := frame(s)
	if err == nil && !ok.OK {
		err = fmt.Errorf("authenticate: %s", ok.Message)
	}
	return err
}

func frame(s *Socket) (wire.RelayFrame, error) {
	payload, err := s.Next()
	if err != nil {
		return wire.RelayFrame{}, err
	}
	return wire.DecodeRelay(payload)
}

// Found implements Dialect: whoever makes a public channel lets everybody in.
func (d Nostr) Found(s *Socket, topics []string) error {
	if !d.Channels {
		return nil
	}
	for _, topic := range topics {
		event := nostr.Event{
			Kind: nostr.KindCreateGroup, CreatedAt: time.Now().Unix(), Tags: nostr.Tags{{"h", topic}, {"name", topic}, {"public"}},
		}
		if err := event.Sign(s.secret); err != nil {
			return err
		}
		if err := s.Write(wire.AppendClientEvent(nil, event.AppendJSON(nil))); err != nil {
			return err
		}
		ok, err := frame(s)
		if err == nil && !ok.OK {
			err = fmt.Errorf("make channel %s: %s", topic, ok.Message)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sort is the kind of a message, and the tag that names its topic.
func (d Nostr) sort() (kind nostr.Kind, tag byte) {
	if d.Channels {
		return nostr.KindChat, 'h'
	}
	return nostr.KindText, 't'
}

// Subscribe implements Dialect: a REQ for each topic.
func (d Nostr) Subscribe(s *Socket, topics []string) error {
	since := time.Now().Unix() - 60
	kind, tag := d.sort()
	for _, topic := range topics {
		req := wire.AppendReq(nil, topic, nostr.Filter{
			Kinds: []nostr.Kind{kind}, Since: &since,
			Tags: []nostr.TagCondition{{Name: tag, Values: []string{topic}}},
		})
		if err := s.Write(req); err != nil {
			return err
		}
		answer, err := frame(s)
		if err != nil {
			return err
		}
		if answer.Label != wire.LabelEOSE {
			return fmt.Errorf("subscribe: %s %s", answer.Label, answer.Message)
		}
	}
	return nil
}

// Message implements Dialect: a signed text note, or a message in a channel.
func (d Nostr) Message(s *Socket, n int, topic string) ([]byte, error) {
	kind, tag := d.sort()
	event := nostr.Event{
		Kind: kind, CreatedAt: time.Now().Unix(), Tags: nostr.Tags{{string(tag), topic}}, Content: Marker(n) + " " + text,
	}
	if err := event.Sign(s.secret); err != nil {
		return nil, err
	}
	return wire.AppendClientEvent(nil, event.AppendJSON(nil)), nil
}

// Refused implements Dialect.
func (d Nostr) Refused(payload []byte) error {
	if !bytes.HasPrefix(payload, []byte(`["OK"`)) {
		return nil
	}
	ok, err := wire.DecodeRelay(payload)
	if err == nil && !ok.OK {
		err = fmt.Errorf("refused: %s", ok.Message)
	}
	return err
}

// Idle implements Dialect: relays ping in WebSocket.
func (d Nostr) Idle(*Socket, []byte) error { return nil }

// Centrifugo is the client protocol of Centrifugo in JSON; one frame may carry several replies, a line each.
type Centrifugo struct{}

type command struct {
	ID        int            `json:"id"`
	Connect   map[string]any `json:"connect,omitempty"`
	Subscribe map[string]any `json:"subscribe,omitempty"`
	Publish   map[string]any `json:"publish,omitempty"`
}

// ask sends a command and waits for its reply.
func ask(s *Socket, c command, want string) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := s.Write(line); err != nil {
		return err
	}
	reply, err := s.Next()
	if err == nil && !bytes.Contains(reply, []byte(want)) {
		err = fmt.Errorf("answered %s", reply)
	}
	return err
}

// Enter implements Dialect.
func (Centrifugo) Enter(s *Socket) error {
	return ask(s, command{ID: 1, Connect: map[string]any{"name": "bench"}}, `"connect":`)
}

// Found implements Dialect: a channel is there when somebody subscribes to it.
func (Centrifugo) Found(*Socket, []string) error { return nil }

// Subscribe implements Dialect.
func (Centrifugo) Subscribe(s *Socket, topics []string) error {
	for i, topic := range topics {
		if err := ask(s, command{ID: 2 + i, Subscribe: map[string]any{"channel": topic}}, `"subscribe":`); err != nil {
			return err
		}
	}
	return nil
}

// sized is what makes a message about as long as a signed event with the same text: id, key and signature.
var sized = strings.Repeat("0123456789abcdef", 16)

// Message implements Dialect.
func (Centrifugo) Message(_ *Socket, n int, topic string) ([]byte, error) {
	return json.Marshal(command{ID: 1000 + n, Publish: map[string]any{
		"channel": topic,
		"data":    map[string]any{"content": Marker(n) + " " + text, "kind": 1, "created_at": time.Now().Unix(), "sig": sized, "tags": [][]string{{"t", topic}}},
	}})
}

// Refused implements Dialect.
func (Centrifugo) Refused(payload []byte) error {
	if bytes.Contains(payload, []byte(`"error":`)) {
		return fmt.Errorf("refused: %s", payload)
	}
	return nil
}

// Idle implements Dialect: an empty reply asks for an empty command.
func (Centrifugo) Idle(s *Socket, payload []byte) error {
	if string(payload) == "{}" {
		return s.Write(payload)
	}
	return nil
}
