package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// relaySide is the relay's end of one connection in a test.
type relaySide struct {
	t  *testing.T
	ws *websocket.Conn
}

// relay runs a relay whose nth connection is played by the nth script; a connection ends with its
// script. It returns its URL.
func relay(t *testing.T, scripts ...func(r relaySide)) string {
	t.Helper()
	next := make(chan func(relaySide), len(scripts))
	for _, script := range scripts {
		next <- script
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		select {
		case script := <-next:
			script(relaySide{t: t, ws: ws})
		default:
			ws.Close(websocket.StatusTryAgainLater, "the script is over")
		}
	}))
	t.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

func (r relaySide) send(frame []byte) {
	_ = r.ws.Write(r.t.Context(), websocket.MessageText, frame)
}

// read returns the client's next frame; the zero Frame when the client has left.
func (r relaySide) read() wire.Frame {
	_, data, err := r.ws.Read(r.t.Context())
	if err != nil {
		return wire.Frame{}
	}
	frame, err := wire.Decode(data, wire.DefaultLimits())
	if err != nil {
		r.t.Errorf("the client sent %q: %v", data, err)
	}
	return frame
}

// authenticate asks for NIP-42 and checks the answer.
func (r relaySide) authenticate(url string) {
	r.send(wire.AppendAuth(nil, "a challenge"))
	event, err := wire.DecodeEvent(r.read().RawEvent, wire.DefaultLimits())
	if err != nil {
		r.t.Errorf("no auth event: %v", err)
		return
	}
	if err := auth.CheckAuthEvent(event, "a challenge", []string{strings.TrimPrefix(url, "ws://")}, time.Now(), time.Minute); err != nil {
		r.t.Errorf("auth: %v", err)
	}
	r.send(wire.AppendOK(nil, event.ID, true, ""))
}

// stored answers the next REQ with events and EOSE, and returns the REQ.
func (r relaySide) stored(events ...*nostr.Event) wire.Frame {
	req := r.read()
	for _, event := range events {
		r.send(wire.AppendEvent(nil, req.SubID, event.AppendJSON(nil)))
	}
	r.send(wire.AppendEOSE(nil, req.SubID))
	return req
}

func text(t *testing.T, content string, createdAt int64) *nostr.Event {
	t.Helper()
	event := &nostr.Event{Kind: nostr.KindText, Content: content, CreatedAt: createdAt}
	require.NoError(t, event.Sign(nostrtest.Key("alice")))
	return event
}

// lines is a writer that gives its lines to a test.
type lines struct {
	lines chan string
	mu    sync.Mutex
	rest  []byte
}

func newLines() *lines { return &lines{lines: make(chan string, 64)} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		l.lines <- string(line)
		l.rest = rest
	}
}

func (l *lines) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-l.lines:
		return line
	case <-time.After(20 * time.Second):
		require.FailNow(t, "nothing was printed")
		return ""
	}
}

// listen runs Listen until the test ends.
func listen(t *testing.T, cfg ListenConfig) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Listen(ctx, cfg) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

func TestListenPrintsEachEventOnceAcrossConnections(t *testing.T) {
	now := time.Now().Unix()
	old, one, two, missed, last := text(t, "old", now-3), text(t, "one", now-2), text(t, "two", now-1), text(t, "missed", now-1), text(t, "last", now)
	released := make(chan struct{})
	var url string
	url = relay(t,
		func(r relaySide) {
			r.authenticate(url)
			req := r.stored(one, old)
			if len(req.Filters) != 2 || *req.Filters[0].Limit != 1 || *req.Filters[1].Since > now-600 {
				t.Errorf("the first REQ asks for %v", req.Filters)
			}
			r.send(wire.AppendEvent(nil, req.SubID, two.AppendJSON(nil)))
			<-released
		},
		func(r relaySide) {
			r.authenticate(url)
			req := r.stored(two, missed, one, old)
			if len(req.Filters) != 1 || *req.Filters[0].Since > now-600 {
				t.Errorf("the second REQ asks for %v", req.Filters)
			}
			r.send(wire.AppendClosed(nil, req.SubID, "error: lagged, resubscribe"))
			req = r.stored(last, two, missed, one, old)
			r.send(wire.AppendEvent(nil, req.SubID, last.AppendJSON(nil)))
			r.read()
		},
	)
	out := newLines()
	notes := newLines()
	listen(t, ListenConfig{Config: Config{URL: url, Key: nostrtest.Key("bob")}, History: 1, Out: out, Notes: notes})

	require.Contains(t, out.next(t), "one")
	require.Contains(t, out.next(t), "two")
	close(released)
	require.Contains(t, out.next(t), "missed")
	require.Contains(t, out.next(t), "last")
	require.Equal(t, "listening on "+url, notes.next(t))
	require.Contains(t, notes.next(t), "trying again in")
	require.Equal(t, "listening again", notes.next(t))
	require.Empty(t, out.lines)
}

func TestListenStopsWhenRefused(t *testing.T) {
	url := relay(t, func(r relaySide) {
		r.send(wire.AppendAuth(nil, "c"))
		event, err := wire.DecodeEvent(r.read().RawEvent, wire.DefaultLimits())
		if err == nil {
			r.send(wire.AppendOK(nil, event.ID, false, "restricted: not a member"))
		}
		r.read()
	})
	err := Listen(t.Context(), ListenConfig{Config: Config{URL: url, Key: nostrtest.Key("bob")}, Out: io.Discard, Notes: io.Discard})
	require.ErrorIs(t, err, ErrAuth)
	require.EqualError(t, err, "the relay does not accept the key "+nostrtest.PubKey("bob").String()+": restricted: not a member",
		"the operator is told this key")
}

func TestListenIgnoresForgeries(t *testing.T) {
	genuine, forged := text(t, "real", time.Now().Unix()), text(t, "forged", time.Now().Unix())
	forged.Content = "other"
	url := relay(t, func(r relaySide) {
		r.send(wire.AppendAuth(nil, "c"))
		event, err := wire.DecodeEvent(r.read().RawEvent, wire.DefaultLimits())
		if err == nil {
			r.send(wire.AppendOK(nil, event.ID, true, ""))
		}
		req := r.stored()
		r.send(wire.AppendEvent(nil, req.SubID, forged.AppendJSON(nil)))
		r.send(wire.AppendEvent(nil, req.SubID, genuine.AppendJSON(nil)))
		r.read()
	})
	out := newLines()
	listen(t, ListenConfig{Config: Config{URL: url, Key: nostrtest.Key("bob")}, Out: out, Notes: io.Discard, JSON: true})
	require.Equal(t, string(genuine.AppendJSON(nil)), out.next(t))
}

func TestPublishTriesAgainUntilThereIsAVerdict(t *testing.T) {
	var url string
	answer := func(ok bool, message string) func(relaySide) {
		return func(r relaySide) {
			r.authenticate(url)
			r.send(wire.AppendOK(nil, r.read().EventID, ok, message))
			r.read()
		}
	}
	url = relay(t,
		func(r relaySide) { r.authenticate(url); r.read() }, // gone without a verdict
		answer(false, "error: try again"),
		answer(true, "duplicate: already stored"),
	)
	event := &nostr.Event{Kind: nostr.KindText, Content: "hello"}
	remark, err := Publish(t.Context(), Config{URL: url, Key: nostrtest.Key("alice")}, event, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "duplicate: already stored", remark)
	require.NoError(t, event.Verify())
}

func TestPublishSaysWhyItWasRefused(t *testing.T) {
	var url string
	url = relay(t, func(r relaySide) {
		r.authenticate(url)
		r.send(wire.AppendOK(nil, r.read().EventID, false, "restricted: not a channel member"))
		r.read()
	})
	_, err := Publish(t.Context(), Config{URL: url, Key: nostrtest.Key("alice")}, &nostr.Event{Kind: nostr.KindChat}, io.Discard)
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "restricted: not a channel member", refused.Message)
	require.EqualError(t, err, "the relay refuses the event of "+nostrtest.PubKey("alice").String()+": restricted: not a channel member")
}

func TestQuery(t *testing.T) {
	newer, older := text(t, "newer", 2), text(t, "older\nsecond line", 1)
	script := func(r relaySide) {
		r.send(wire.AppendAuth(nil, "c"))
		event, err := wire.DecodeEvent(r.read().RawEvent, wire.DefaultLimits())
		if err == nil {
			r.send(wire.AppendOK(nil, event.ID, true, ""))
		}
		r.stored(newer, older)
		r.read()
	}
	url := relay(t, script, script)
	cfg := Config{URL: url, Key: nostrtest.Key("alice")}

	var people, machines strings.Builder
	require.NoError(t, Query(t.Context(), QueryConfig{Config: cfg, Out: &people, Notes: io.Discard}))
	require.Regexp(t, `(?s)older\n +second line\n.*newer\n$`, people.String())
	require.NoError(t, Query(t.Context(), QueryConfig{Config: cfg, Out: &machines, Notes: io.Discard, JSON: true}))
	require.Equal(t, string(newer.AppendJSON(nil))+"\n"+string(older.AppendJSON(nil))+"\n", machines.String())
}

func TestABrokenConnectionIsSaidPlainly(t *testing.T) {
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		require.EqualError(t, readable(fmt.Errorf("failed to get reader: failed to read frame header: %w", err)), "the connection broke")
	}
	other := errors.New("other")
	require.Equal(t, other, readable(other))
}

func TestRecentForgetsTheOldest(t *testing.T) {
	r := newRecent(2)
	a, b, c := sighting{id: nostr.ID{1}}, sighting{id: nostr.ID{2}}, sighting{id: nostr.ID{3}}
	require.True(t, r.add(a))
	require.False(t, r.add(a))
	require.True(t, r.add(b))
	require.True(t, r.add(c))
	require.False(t, r.add(b))
	require.True(t, r.add(a))
	require.Len(t, r.ids, 2)
}

// A reminder is printed when it is written and when it is due, each once; other events have no time.
func TestRemindersAreSeenAgainWhenTheyAreDue(t *testing.T) {
	due := time.Unix(1_800_000_000, 0)
	reminder := &nostr.Event{Kind: nostr.KindReminder, Tags: nostr.Tags{{"not_before", "1800000000"}}}
	r := newRecent(10)
	for _, c := range []struct {
		at  time.Time
		new bool
	}{{due.Add(-time.Hour), true}, {due.Add(-time.Minute), false}, {due.Add(-time.Second), true}, {due.Add(time.Hour), false}} {
		require.Equal(t, c.new, r.add(sightingOf(reminder, c.at)), c.at)
	}
	for _, other := range []*nostr.Event{
		{Kind: nostr.KindText, Tags: reminder.Tags},
		{Kind: nostr.KindReminder},
		{Kind: nostr.KindReminder, Tags: nostr.Tags{{"not_before", "soon"}}},
	} {
		require.Equal(t, sighting{}, sightingOf(other, due.Add(time.Hour)))
	}
}

func TestLoadKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "client.key")
	key, created, err := LoadKey(path)
	require.NoError(t, err)
	require.True(t, created)
	again, created, err := LoadKey(path)
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, key.PubKey(), again.PubKey())
}
