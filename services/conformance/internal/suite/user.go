package suite

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
)

// User is a key with a connection. Its methods end the case when the relay does otherwise than they say.
type User struct {
	// Key signs what the user makes.
	Key *nostr.SecretKey
	// Pub is its public key, Hex the same as in a filter.
	Pub nostr.PubKey
	Hex string

	t    *T
	conn *client.Conn
}

// User returns a new key with a connection, authenticated where the relay wants that.
func (t *T) User() *User {
	u := t.Guest()
	u.login()
	return u
}

// Users returns n users.
func (t *T) Users(n int) []*User {
	users := make([]*User, n)
	for i := range users {
		users[i] = t.User()
	}
	return users
}

// Guest returns a new key with a connection on which it has not authenticated.
func (t *T) Guest() *User {
	key := t.Key()
	return &User{Key: key, Pub: key.PubKey(), Hex: key.PubKey().String(), t: t, conn: t.Dial()}
}

// Again returns the same user over another connection.
func (u *User) Again() *User {
	again := *u
	again.conn = u.t.Dial()
	again.login()
	return &again
}

// As returns a user with another key on the same connection.
func (u *User) As(key *nostr.SecretKey) *User {
	return &User{Key: key, Pub: key.PubKey(), Hex: key.PubKey().String(), t: u.t, conn: u.conn}
}

// Conn is the user's connection.
func (u *User) Conn() *client.Conn { return u.conn }

// login authenticates where the relay asks for it. A relay that lets strangers in need not let this one
// authenticate.
func (u *User) login() {
	if !u.t.relay.Greets && !u.t.relay.Locked {
		return
	}
	v := u.answer(client.LabelAuth, u.AuthEvent(u.Challenge()))
	u.t.Check(v.OK || !u.t.relay.Locked, "an unknown key can authenticate", "%s", v)
}

// Challenge returns the relay's newest challenge on this connection. If none came, it asks for something
// that may need one.
func (u *User) Challenge() string {
	isAuth := func(f *client.Frame) bool { return f.Label == client.LabelAuth }
	if !u.t.relay.Greets {
		ctx, cancel := u.t.Step()
		defer cancel()
		_ = u.conn.SendJSON(ctx, "REQ", u.conn.NewSub(), map[string]any{"kinds": []int{4, 1059}, "#p": []string{u.Hex}, "limit": 1})
	}
	ctx, cancel := u.t.Step()
	defer cancel()
	f, _, err := u.conn.Await(ctx, 0, isAuth)
	if err != nil && !u.t.relay.Locked {
		u.t.NotClaimed("the relay sends no challenge")
	}
	u.t.Check(err == nil, "a challenge", "%v", err)
	for _, later := range u.conn.Since(0) {
		if isAuth(&later) {
			f = &later
		}
	}
	return f.Message
}

// AuthEvent returns the answer to a challenge, as the user signs it for this relay now.
func (u *User) AuthEvent(challenge string) *nostr.Event {
	return u.Event(u.t.Now(), nostr.KindAuth, "", nostr.Tag{"relay", u.conn.URL()}, nostr.Tag{"challenge", challenge})
}

// Authenticate sends an AUTH and returns the relay's answer.
func (u *User) Authenticate(e *nostr.Event) client.Verdict {
	return u.submit(client.LabelAuth, e)
}

// Event signs an event.
func (u *User) Event(at int64, kind nostr.Kind, content string, tags ...nostr.Tag) *nostr.Event {
	e := &nostr.Event{CreatedAt: at, Kind: kind, Content: content, Tags: tags}
	err := e.Sign(u.Key)
	u.t.Check(err == nil, "a signature", "%v", err)
	return e
}

// Note signs a text note of now.
func (u *User) Note(content string, tags ...nostr.Tag) *nostr.Event {
	return u.Event(u.t.Now(), nostr.KindText, content, tags...)
}

// submit sends an event and returns the answer, which must come and be as NIP-01 has it.
func (u *User) submit(label string, e *nostr.Event) client.Verdict {
	v := u.answer(label, e)
	u.t.checkVerdict(v)
	return v
}

// answer sends an event and returns the answer, which must come.
func (u *User) answer(label string, e *nostr.Event) client.Verdict {
	ctx, cancel := u.t.Step()
	defer cancel()
	v, err := u.conn.Submit(ctx, label, e.ID, e.AppendJSON(nil))
	u.t.Check(err == nil, label+" is answered with an OK for its id", "%s", u.saw(err))
	return v
}

// saw describes why an answer did not come, with what the relay said meanwhile if that may explain it.
func (u *User) saw(err error) string {
	if err == nil {
		return ""
	}
	text := Saw(nil, err)
	var said []string
	for _, f := range u.conn.Since(0) {
		if f.Label == client.LabelNotice || f.Label == client.LabelClosed {
			said = append(said, f.String())
		}
	}
	if len(said) > 0 {
		text += "; the relay said " + strings.Join(said[max(0, len(said)-3):], ", ")
	}
	return text
}

// Saw describes a frame that came, or why none did.
func Saw(f *client.Frame, err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "nothing"
	case err != nil:
		return err.Error()
	default:
		return f.String()
	}
}

// prefixes are the machine-readable words of NIP-01 and NIP-42. NIP-01 names unsupported in an example.
var prefixes = []string{
	"duplicate", "pow", "blocked", "rate-limited", "invalid", "restricted", "mute", "error",
	"auth-required", "unsupported",
}

var refusal = regexp.MustCompile(`^([a-z-]+): ?\S`)

// prefix returns the machine-readable word of a message, empty if it has none of the known ones.
func prefix(message string) string {
	m := refusal.FindStringSubmatch(message)
	if m == nil || !slices.Contains(prefixes, m[1]) {
		return ""
	}
	return m[1]
}

func (t *T) checkVerdict(v client.Verdict) {
	t.Check(v.OK || prefix(v.Message) != "", "a refusal that begins with a machine-readable prefix", "%s", v)
}

// Offer publishes an event and returns the relay's answer.
func (u *User) Offer(e *nostr.Event) client.Verdict { return u.submit(client.LabelEvent, e) }

// window is how many events are in flight when many are published; relays limit it.
const window = 64

// Accept publishes events, which the relay must accept.
func (u *User) Accept(events ...*nostr.Event) {
	for i, v := range u.OfferAll(events...) {
		u.t.Fail("OK true for "+describe(events[i]), "%s", v)
	}
}

// OfferAll publishes events, many at a time, and returns the verdicts on those that the relay refused.
func (u *User) OfferAll(events ...*nostr.Event) map[int]client.Verdict {
	refused := map[int]client.Verdict{}
	for from := 0; from < len(events); from += window {
		batch := events[from:min(from+window, len(events))]
		mark := u.conn.Mark()
		ctx, cancel := u.t.Step()
		for _, e := range batch {
			err := u.conn.Send(ctx, []byte(`["EVENT",`+string(e.AppendJSON(nil))+`]`))
			u.t.Check(err == nil, "the relay reads an EVENT", "%v", err)
		}
		cancel()
		for i, e := range batch {
			ctx, cancel := u.t.Step()
			v, err := u.conn.Verdict(ctx, mark, e.ID)
			cancel()
			u.t.Check(err == nil, "EVENT is answered with an OK for its id", "%s", u.saw(err))
			u.t.checkVerdict(v)
			if !v.OK {
				refused[from+i] = v
			}
		}
	}
	return refused
}

// AcceptOrDecline publishes an event; a relay that refuses it does not claim to take such events.
func (u *User) AcceptOrDecline(e *nostr.Event) {
	if v := u.Offer(e); !v.OK {
		u.t.NotClaimed("the relay refuses kind %d: %s", e.Kind, v.Message)
	}
}

// Refuse publishes an event, which the relay must refuse, with one of the prefixes if there are any.
func (u *User) Refuse(e *nostr.Event, with ...string) {
	v := u.Offer(e)
	u.t.Check(!v.OK, "OK false for "+describe(e), "%s", v)
	u.t.Check(len(with) == 0 || slices.Contains(with, prefix(v.Message)), "a refusal with "+strings.Join(with, " or "), "%s", v)
}

// describe returns an event for a person.
func describe(e *nostr.Event) string {
	return "the event " + client.Excerpt(e.AppendJSON(nil))
}

// OfferRaw sends an event's bytes in an EVENT and returns the relay's answer to id.
func (u *User) OfferRaw(id nostr.ID, raw []byte) client.Verdict {
	return u.OfferFrame(id, []byte(`["EVENT",`+string(raw)+`]`))
}

// OfferFrame sends a frame and returns the relay's OK to id.
func (u *User) OfferFrame(id nostr.ID, frame []byte) client.Verdict {
	ctx, cancel := u.t.Step()
	defer cancel()
	mark := u.conn.Mark()
	err := u.conn.Send(ctx, frame)
	u.t.Check(err == nil, "the relay reads "+client.Excerpt(frame), "%v", err)
	v, err := u.conn.Verdict(ctx, mark, id)
	u.t.Check(err == nil, "an OK for the id in "+client.Excerpt(frame), "%s", u.saw(err))
	u.t.checkVerdict(v)
	return v
}
