package cluster_test

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// The readers: who signs the events, whom p tags name, who moderates, and who has nothing to do with them. The stranger is no
// member of the community.
var gateReaders = []string{"author", "party", "owner", "other", "stranger"}

// gates has an event of every kind that is not for everybody, and some that are, in every place that they can be in.
type gates struct {
	*testing.T
	c       *cluster.Cluster
	host    string
	clients map[string]*cluster.Client
	// open, private and lobby are channels. The author and the party are members of the private one.
	open, private, lobby string
	conversation         string
	roots                map[string]*nostr.Event // first events of threads, by channel
	events               []gated
}

// gated is an event and where it is; channel is empty for the global topic.
type gated struct {
	*nostr.Event
	channel string
}

// gate compares what every reader finds at every door with what the table of kinds says. A kind that is new in the table is here as well;
// one that does not come about by sending it needs a line in madeKinds. A door that is new needs one in storedDoors or in
// modes.
func gate(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	g := &gates{
		T: t, c: c, host: c.CreateCommunity(t, "gates.example", who(t, "owner")), clients: map[string]*cluster.Client{},
		open: "gates-open", private: "gates-private", lobby: "gates-lobby", roots: map[string]*nostr.Event{},
	}
	for _, name := range []string{"author", "party", "other"} {
		c.PutMember(t, g.host, who(t, name))
	}
	for i, name := range gateReaders[:4] {
		client := cluster.ConnectHost(t, c.Gateway(i), g.host, who(t, name))
		var attested []nostrtest.Option
		if name == "author" { // an agent of the party's, as some kinds want
			attested = append(attested, attestedBy(t, who(t, "party"), who(t, name), ""))
		}
		require.True(t, client.AuthenticateWith("ws://"+g.host, attested...).OK)
		g.clients[name] = client
	}
	author, owner := g.clients["author"], g.clients["owner"]
	owner.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(g.open))
	owner.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(g.lobby))
	author.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(g.private), nostrtest.Tag("private"))
	author.Accept(nostrtest.Kind(nostr.KindPutUser), nostrtest.Channel(g.private), pubkey(who(t, "party")))
	live := g.listen()
	g.fill()
	g.heard(live)
	g.stored()
	g.modes()
}

// may is what the table says, and the channel.
func (g *gates) may(reader string, e *gated) bool {
	if reader == "stranger" || (e.channel == g.private && reader != "author" && reader != "party") {
		return false
	}
	return kind.AudienceOf(e.Event).Has(nostrtest.PubKey(who(g.T, reader)), reader == "owner")
}

// madeKinds are the kinds that do not come about by sending an event with a d and a p tag, and how they do.
var madeKinds = map[nostr.Kind]func(g *gates) gated{
	nostr.KindReminder: func(g *gates) gated {
		return gated{Event: g.clients["author"].Accept(remindIn(3600, "gate", pubkey(who(g.T, "party")))...)}
	},
	nostr.KindJoinRequest: func(g *gates) gated {
		return gated{g.clients["author"].Accept(nostrtest.Kind(nostr.KindJoinRequest), nostrtest.Channel(g.lobby)), g.lobby}
	},
	nostr.KindMemberAdded: func(g *gates) gated {
		g.clients["owner"].Accept(nostrtest.Kind(nostr.KindPutUser), nostrtest.Channel(g.lobby), pubkey(who(g.T, "party")))
		return g.told(nostr.KindMemberAdded)
	},
	nostr.KindMemberRemoved: func(g *gates) gated {
		g.clients["owner"].Accept(nostrtest.Kind(nostr.KindRemoveUser), nostrtest.Channel(g.lobby), pubkey(who(g.T, "party")))
		return g.told(nostr.KindMemberRemoved)
	},
	nostr.KindOpenConversation: func(g *gates) gated {
		ev, answer := g.command(nostr.KindOpenConversation, pubkey(who(g.T, "party")))
		g.conversation = answer.Channel
		return gated{Event: ev}
	},
	nostr.KindAddToConversation: func(g *gates) gated {
		ev, _ := g.command(nostr.KindAddToConversation, nostrtest.Channel(g.conversation), pubkey(who(g.T, "other")))
		return gated{Event: ev}
	},
	nostr.KindHideConversation: func(g *gates) gated {
		ev, _ := g.command(nostr.KindHideConversation, nostrtest.Channel(g.conversation))
		return gated{Event: ev}
	},
	nostr.KindHiddenConversations: func(g *gates) gated {
		found := g.clients["author"].Query(hiding(g.T, "author"))
		require.Len(g, found, 1)
		return gated{Event: found[0]}
	},
}

// command sends a command of conversations as the author.
func (g *gates) command(k nostr.Kind, opts ...nostrtest.Option) (*nostr.Event, conversation) {
	g.Helper()
	ev := g.clients["author"].Event(append(opts, nostrtest.Kind(k), unique())...)
	return ev, readConversation(g.T, g.clients["author"].Publish(ev))
}

// told is what the relay has told the party of the lobby.
func (g *gates) told(k nostr.Kind) gated {
	g.Helper()
	for _, ev := range g.clients["party"].Query(nostr.Filter{Kinds: []nostr.Kind{k}, Tags: []nostr.TagCondition{{
		Name: 'p', Values: []string{nostrtest.PubKey(who(g.T, "party")).String()},
	}}}) {
		if h, _ := ev.Tags.First("h"); h == g.lobby {
			return gated{Event: ev}
		}
	}
	require.FailNow(g, "nothing was told")
	return gated{}
}

// gateWord is in the content of what everybody may read, and gateName the d tag of everything: a name by any rule.
const gateWord = "gatekeeping"

var gateName = strings.Repeat("0a", 32)

// send publishes an event of a kind in a place, with everything that doors look at.
func (g *gates) send(k nostr.Kind, channel string, opts ...nostrtest.Option) *nostr.Event {
	g.Helper()
	opts = append(opts, nostrtest.Kind(k), pubkey(who(g.T, "party")), nostrtest.Tag("d", gateName), nostrtest.Content(gateWord), unique(),
		nostrtest.Tag("agent", nostrtest.PubKey(who(g.T, "author")).String()), nostrtest.Tag("frame", "telemetry"))
	if kind.Of(k).Form.Sealed {
		opts = append(opts, sealed(gateWord))
	}
	if channel != "" {
		opts = append(opts, nostrtest.Channel(channel))
	}
	if root := g.roots[channel]; root != nil {
		opts = append(opts, nostrtest.Tag("e", root.ID.String(), "", "reply"))
	}
	ev := g.clients["author"].Event(opts...)
	require.Equal(g, cluster.Verdict{OK: true}, g.clients["author"].Publish(ev), "kind %d: say in madeKinds how it comes about", k)
	g.events = append(g.events, gated{ev, channel})
	return ev
}

// notSent are kinds of the table that this relay does not take from anybody yet.
var notSent = []nostr.Kind{nostr.KindPushLease}

func (g *gates) fill() {
	g.Helper()
	for _, channel := range []string{g.open, g.private} {
		g.roots[channel] = g.send(nostr.KindChat, channel)
		for _, k := range []nostr.Kind{nostr.KindChat, nostr.KindReaction, nostr.KindMessageEdit} {
			g.send(k, channel)
		}
	}
	g.send(nostr.KindText, "")
	kinds := kind.List(func(r kind.Rules) bool { return r.Readers != kind.Everybody && r.Class != kind.Unstored })
	slices.SortStableFunc(kinds, func(x, y nostr.Kind) int { // what the relay says follows from what others do
		return cmp.Compare(kind.Of(x).Sender, kind.Of(y).Sender)
	})
	for _, k := range kinds {
		switch {
		case slices.Contains(notSent, k):
			ev := g.clients["author"].Event(nostrtest.Kind(k), nostrtest.Tag("d", gateName))
			require.False(g, g.clients["author"].Publish(ev).OK, "kind %d is taken: it has a gate", k)
		case madeKinds[k] != nil:
			g.events = append(g.events, madeKinds[k](g))
		default:
			g.send(k, "")
			if kind.Of(k).Scope == kind.Optional {
				g.send(k, g.open)
				g.send(k, g.private)
			}
		}
	}
}

// listen opens the subscriptions of everybody, by topic.
func (g *gates) listen() map[string]map[string]*cluster.Sub {
	g.Helper()
	none := 0
	live := map[string]map[string]*cluster.Sub{}
	for reader, client := range g.clients {
		live[reader] = map[string]*cluster.Sub{"": client.Subscribe(nostr.Filter{Limit: &none})}
		for _, channel := range []string{g.open, g.private, g.lobby} {
			f := in(channel)
			f.Limit = &none
			live[reader][channel] = client.Subscribe(f)
		}
	}
	return live
}

// heard compares what came live.
func (g *gates) heard(live map[string]map[string]*cluster.Sub) {
	g.Helper()
	markers := map[string]nostr.ID{"": g.clients["author"].Accept(unique()).ID}
	for _, channel := range []string{g.open, g.lobby, g.private} {
		markers[channel] = g.clients["author"].Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(channel), unique()).ID
	}
	for reader, subs := range live {
		for channel, s := range subs {
			if channel == g.private && reader != "author" && reader != "party" {
				continue // looked at when all others have come
			}
			var got []string
			for ev := s.Next(); ev.ID != markers[channel]; ev = s.Next() {
				got = append(got, ev.ID.String())
			}
			g.same(reader, got, func(e *gated) bool { return e.channel == channel }, "live in "+strconv.Quote(channel))
		}
	}
	for _, reader := range []string{"owner", "other"} {
		live[reader][g.private].Silent()
	}
}

// same requires that of all events exactly those that are asked for, and that the reader may read, are in an answer.
func (g *gates) same(reader string, got []string, asked func(e *gated) bool, door string) {
	g.Helper()
	found := map[string]int{}
	for _, id := range got {
		found[id]++
	}
	for i := range g.events {
		e := &g.events[i]
		want := 0
		if asked(e) && g.may(reader, e) {
			want = 1
		}
		require.Equal(g, want, found[e.ID.String()], "%s, %s: kind %d in %q", door, reader, e.Kind, e.channel)
	}
}

// question is a filter and which of the events it asks for.
type question struct {
	name   string
	filter nostr.Filter
}

func (q *question) asks(e *gated) bool {
	f := q.filter
	channels, scoped := f.Tag('h')
	f.Tags = slices.DeleteFunc(slices.Clone(f.Tags), func(c nostr.TagCondition) bool { return c.Name == 'h' })
	return kind.Of(e.Kind).Class != kind.Ephemeral && f.Match(e.Event) && (!scoped || slices.Contains(channels, e.channel))
}

// questions are filters of every sort; those that name a kind say what the table wants of the reader.
func (g *gates) questions(reader string) []question {
	var all []nostr.ID
	for i := range g.events {
		all = append(all, g.events[i].ID)
	}
	self := nostrtest.PubKey(who(g.T, reader))
	tag := func(name byte, values ...string) []nostr.TagCondition {
		return []nostr.TagCondition{{Name: name, Values: values}}
	}
	list := []question{
		{"everything", nostr.Filter{}},
		{"ids", nostr.Filter{IDs: all}},
		{"author", by(who(g.T, "author"))},
		{"p", nostr.Filter{Tags: tag('p', nostrtest.PubKey(who(g.T, "party")).String())}},
		{"d", nostr.Filter{Tags: tag('d', gateName)}},
		{"e", nostr.Filter{Tags: tag('e', g.roots[g.open].ID.String(), g.roots[g.private].ID.String())}},
		{"channels", nostr.Filter{Tags: tag('h', g.open, g.private, g.lobby)}},
		{"kinds", nostr.Filter{Kinds: kind.List(func(r kind.Rules) bool { return r.Readers != kind.Everybody && r.Ask == kind.Nothing })}},
	}
	for _, k := range kind.List(func(r kind.Rules) bool { return r.Ask != kind.Nothing }) {
		f := nostr.Filter{Kinds: []nostr.Kind{k}, Tags: tag('p', self.String())}
		if kind.Of(k).Ask == kind.OwnAuthor {
			f = nostr.Filter{Kinds: []nostr.Kind{k}, Authors: []nostr.PubKey{self}}
		}
		list = append(list, question{"kind " + strconv.Itoa(int(k)), f})
	}
	return list
}

// storedDoors answer a filter with the ids of events.
var storedDoors = map[string]func(g *gates, reader string, f nostr.Filter) []string{
	"REQ": func(g *gates, reader string, f nostr.Filter) []string {
		if g.clients[reader] == nil {
			return nil // who is no member has no socket
		}
		return ids(g.clients[reader].Query(f))
	},
	"/query":      func(g *gates, reader string, f nostr.Filter) []string { return g.ask(reader, f, "") },
	"/query page": func(g *gates, reader string, f nostr.Filter) []string { return g.ask(reader, f, `,"page":1`) },
	"/query before_id": func(g *gates, reader string, f nostr.Filter) []string {
		return g.ask(reader, f, `,"until":`+strconv.FormatInt(time.Now().Unix()+60, 10)+`,"before_id":"`+nostr.ID{}.String()+`"`)
	},
}

// ask asks over HTTP, with more fields than a filter has.
func (g *gates) ask(reader string, f nostr.Filter, more string) []string {
	g.Helper()
	body := string(f.AppendJSON(nil))
	if body == "{}" {
		more = strings.TrimPrefix(more, ",")
	}
	return g.query(reader, strings.TrimSuffix(body, "}")+more+"}")
}

// query asks over HTTP with one filter, and returns the ids of the events.
func (g *gates) query(reader, filter string) (found []string) {
	g.Helper()
	status, answer := ask(g.T, g.c.Gateway(1), g.host, who(g.T, reader), "/query", "["+filter+"]")
	if reader == "stranger" {
		require.Equal(g, http.StatusForbidden, status)
		require.JSONEq(g, `{"error":"not a relay member"}`, answer)
		return nil
	}
	require.Equal(g, http.StatusOK, status, answer)
	var events []struct{ ID string }
	require.NoError(g, json.Unmarshal([]byte(answer), &events))
	for _, ev := range events {
		found = append(found, ev.ID)
	}
	return found
}

func (g *gates) stored() {
	g.Helper()
	for _, reader := range gateReaders {
		list := g.questions(reader)
		if reader == "stranger" {
			list = list[:1]
		}
		for _, q := range list {
			stored := 0
			for door, try := range storedDoors {
				if door != "REQ" && len(q.filter.Kinds) == 1 {
					continue // many questions; that other doors judge alike is looked at below
				}
				got := try(g, reader, q.filter)
				stored = len(got)
				g.same(reader, got, q.asks, door+" "+q.name)
			}
			g.counts(reader, q, stored)
		}
	}
	// Without saying whose, a filter that names such a kind is refused by every door.
	for _, k := range kind.List(func(r kind.Rules) bool { return r.Ask != kind.Nothing }) {
		f := nostr.Filter{Kinds: []nostr.Kind{k}}
		why := kind.Refusal(&f, nil)
		require.Equal(g, "restricted: "+why, g.clients["other"].Refused(f))
		for _, path := range []string{"/query", "/count"} {
			status, answer := ask(g.T, g.c.Gateway(0), g.host, who(g.T, "other"), path, "["+string(f.AppendJSON(nil))+"]")
			require.Equal(g, http.StatusForbidden, status)
			require.JSONEq(g, `{"error":"restricted: `+why+`"}`, answer)
		}
	}
}

// counts requires that nothing is counted that is not shown.
func (g *gates) counts(reader string, q question, stored int) {
	g.Helper()
	status, answer := ask(g.T, g.c.Gateway(0), g.host, who(g.T, reader), "/count", "["+string(q.filter.AppendJSON(nil))+"]")
	if reader == "stranger" {
		require.Equal(g, http.StatusForbidden, status)
		return
	}
	require.EqualValues(g, stored, g.clients[reader].Count(q.filter), "COUNT %s, %s", q.name, reader)
	var counted struct{ Count int }
	require.NoError(g, json.Unmarshal([]byte(answer), &counted), answer)
	require.Equal(g, stored, counted.Count, "/count %s, %s", q.name, reader)
}

// mode is a filter with fields that are not of NIP-01, and what it certainly shows of what the reader may read.
type mode struct {
	name, fields string
	shows        func(e *gated) bool
}

// modesOf are all modes of /query.
func (g *gates) modesOf() []mode {
	of := func(channel string, kinds ...nostr.Kind) func(e *gated) bool {
		return func(e *gated) bool {
			return e.channel == channel && e.ID != g.roots[channel].ID && slices.Contains(kinds, e.Kind)
		}
	}
	list := []mode{
		{"search", `"search":"` + gateWord + `"`, func(e *gated) bool { return kind.Of(e.Kind).Searchable }},
		{"search_mode", `"search":"` + gateWord[:5] + `","search_mode":"prefix"`, func(e *gated) bool { return kind.Of(e.Kind).Searchable }},
		{"feed_types", `"feed_types":["activity"],"limit":100`, func(e *gated) bool { return kind.Of(e.Kind).Feeds&kind.Activity != 0 }},
		{"feed_types", `"feed_types":["needs_action","mentions"],"limit":100`, func(*gated) bool { return false }},
	}
	for channel, root := range g.roots {
		h, e := `"#h":["`+channel+`"]`, `"#e":["`+root.ID.String()+`"]`
		replies, about := of(channel, nostr.KindChat), of(channel, nostr.KindChat, nostr.KindReaction, nostr.KindMessageEdit)
		rows := func(e *gated) bool {
			return e.channel == channel && !replies(e) && kind.Of(e.Kind).Class != kind.Ephemeral
		}
		list = append(list,
			mode{"depth_limit", e + `,"depth_limit":100`, replies},
			mode{"depth_limit and include_aux", e + `,"depth_limit":100,"include_aux":true`, about},
			mode{"thread_cursor", e + `,"depth_limit":100,"thread_cursor":0,"thread_cursor_id":"` + nostr.ID{}.String() + `"`, replies},
			mode{"thread_window", h + `,` + e + `,"thread_window":true`, replies},
			mode{"thread_window and include_aux", h + `,` + e + `,"thread_window":true,"include_aux":true`, about},
			mode{"top_level", h + `,"top_level":true,"limit":200`, rows},
			mode{"top_level and all", h + `,"top_level":true,"limit":200,"include_aux":true,"include_summaries":true`, rows},
		)
	}
	return list
}

func (g *gates) modes() {
	g.Helper()
	// The index follows the stream.
	found := nostr.Filter{Search: gateWord, Authors: by(who(g.T, "author")).Authors}
	g.clients["author"].QueryUntil(func(events []*nostr.Event) bool { return len(events) == 4 }, found)
	for _, reader := range gateReaders {
		for _, m := range g.modesOf() {
			got := g.query(reader, "{"+m.fields+"}")
			for i := range g.events {
				e := &g.events[i]
				if may := g.may(reader, e); reader != "stranger" && (!may || m.shows(e)) {
					require.Equal(g, may, slices.Contains(got, e.ID.String()), "%s, %s: kind %d in %q", m.name, reader, e.Kind, e.channel)
				}
			}
		}
	}
}
