package cluster_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

const notAMember = "restricted: not a relay member"

// attestedBy is the tag by which an owner attests an agent.
func attestedBy(t *testing.T, owner, agent, conditions string) nostrtest.Option {
	t.Helper()
	return nostrtest.Tag(cluster.Attestation(t, owner, agent, conditions)...)
}

// agentsOfMembers are let into a closed community for as long as their owner is, and not a moment longer.
func agentsOfMembers(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice, bob, bot := who(t, "alice"), who(t, "bob"), who(t, "bot")
	host := c.CreateCommunity(t, "agents.example", alice)
	c.PutMember(t, host, bob)
	url := "ws://" + host
	now := time.Now().Unix()

	for what, opts := range map[string][]nostrtest.Option{
		"nothing":                   {},
		"another agent's":           {attestedBy(t, bob, who(t, "other"), "")},
		"two":                       {attestedBy(t, bob, bot, ""), attestedBy(t, bob, bot, "")},
		"what has ended":            {attestedBy(t, bob, bot, "created_at<"+strconv.FormatInt(now, 10))},
		"what has not begun":        {attestedBy(t, bob, bot, "created_at>"+strconv.FormatInt(now+3600, 10))},
		"conditions that are none":  {nostrtest.Tag("auth", nostrtest.PubKey(bob).String(), "kind=01", cluster.Attestation(t, bob, bot, "")[3])},
		"the signature of somebody": {nostrtest.Tag("auth", nostrtest.PubKey(alice).String(), "", cluster.Attestation(t, bob, bot, "")[3])},
	} {
		guest := cluster.ConnectHost(t, c.Gateway(0), host, bot)
		require.True(t, guest.AuthenticateWith(url, opts...).OK, what)
		require.Equal(t, notAMember, guest.Refused(by(alice)), what)
	}
	stranger := cluster.ConnectHost(t, c.Gateway(0), host, bot)
	verdict := stranger.AuthenticateWith(url, attestedBy(t, who(t, "mallory"), bot, ""))
	require.False(t, verdict.OK)
	require.Equal(t, notAMember, verdict.Message)

	owner := cluster.DialHost(t, c.Gateway(0), host, alice)
	agents := []*cluster.Client{cluster.DialAgent(t, c.Gateway(0), host, bot, bob)}
	agents = append(agents, cluster.DialHost(t, c.Gateway(1), host, bot)) // it is known now, everywhere
	var subs []*cluster.Sub
	for _, agent := range agents {
		subs = append(subs, agent.Subscribe(by(alice)))
		agent.Accept(nostrtest.Content(strconv.Itoa(len(subs))))
	}
	event := owner.Accept(nostrtest.Content("hello agents"))
	for _, sub := range subs {
		require.Equal(t, event, sub.Next())
	}
	require.Len(t, owner.Query(by(bot)), 2)

	c.RemoveMember(t, host, bob)
	for i, agent := range agents {
		revoked(t, agent, subs[i], notAMember)
	}
	verdict = cluster.ConnectHost(t, c.Gateway(1), host, bot).AuthenticateWith(url, attestedBy(t, bob, bot, ""))
	require.False(t, verdict.OK)
	require.Equal(t, notAMember, verdict.Message)

	c.PutMember(t, host, bob)
	agent := cluster.DialAgent(t, c.Gateway(1), host, bot, bob)
	sub := agent.Subscribe(by(alice))
	require.Equal(t, []*nostr.Event{event}, agent.Query(by(alice)))
	order(t, owner, nostr.KindBan, against(bob))
	revoked(t, agent, sub, youAreBanned)
	for _, name := range []string{bot, who(t, "newer")} {
		again := cluster.ConnectHost(t, c.Gateway(0), host, name)
		verdict := again.AuthenticateWith(url, attestedBy(t, bob, name, ""))
		require.False(t, verdict.OK)
		require.Equal(t, youAreBanned, verdict.Message)
		code, _ := again.Ended()
		require.Equal(t, websocket.StatusPolicyViolation, code)
	}
}

// boundedAgents get nothing that is written after the end of their attestation, and lose their socket soon after it.
func boundedAgents(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice, bot := who(t, "alice"), who(t, "bot")
	host := c.CreateCommunity(t, "bounded.example", alice)
	end := time.Now().Add(4 * time.Second).Truncate(time.Second)
	agent := cluster.ConnectHost(t, c.Gateway(0), host, bot)
	require.True(t, agent.AuthenticateWith("ws://"+host, attestedBy(t, alice, bot, "created_at<"+strconv.FormatInt(end.Unix(), 10))).OK)
	sub := agent.Subscribe(by(alice))
	owner := cluster.DialHost(t, c.Gateway(1), host, alice)
	require.Equal(t, owner.Accept(nostrtest.Content("while it holds")), sub.Next())

	// Nothing has been told when it ends, and the agent listens on: what is written now is the test.
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	var entitled []*nostr.Event
	for n := 0; ; n++ {
		written := time.Now()
		event := owner.Accept(nostrtest.Content(strconv.Itoa(n)))
		if time.Now().Before(end) {
			entitled = append(entitled, event)
		}
		if written.After(end.Add(100 * time.Millisecond)) {
			break // later than that the sweep may be first
		}
		<-pace.C
	}
	for _, event := range entitled {
		require.Equal(t, event, sub.Next())
	}
	frame := sub.NextFrame()
	if frame.Label == wire.LabelEvent { // one may have been under way when it ended
		frame = sub.NextFrame()
	}
	require.Equal(t, wire.LabelClosed, frame.Label)
	require.Equal(t, notAMember, frame.Message)
	code, reason := agent.Ended()
	require.Equal(t, websocket.StatusPolicyViolation, code)
	require.Equal(t, notAMember, reason)
	require.WithinRange(t, time.Now(), end, end.Add(10*time.Second), "not when ingest or the gateway would look at everything")
}

// agentsOverHTTP show whose they are in the proof, or in a header.
func agentsOverHTTP(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := who(t, "alice")
	host := c.CreateCommunity(t, "agents-http.example", alice)
	body := `[{"authors":["` + nostrtest.PubKey(alice).String() + `"]}]`
	query := func(gateway int, name string, header []string, more ...nostrtest.Option) int {
		all := http.Header{"Authorization": {cluster.Token(t, host, name, "/query", body, more...)}}
		for _, value := range header {
			all.Add("X-Auth-Tag", value)
		}
		status, _ := cluster.HTTP(t, http.MethodPost, c.Gateway(gateway), host, "/query", all, body)
		return status
	}
	for i, show := range []func(name string) ([]string, []nostrtest.Option){
		func(name string) ([]string, []nostrtest.Option) {
			return nil, []nostrtest.Option{attestedBy(t, alice, name, "")}
		},
		func(name string) ([]string, []nostrtest.Option) {
			return []string{cluster.AttestationHeader(t, cluster.Attestation(t, alice, name, ""))}, nil
		},
	} {
		name := who(t, "bot"+strconv.Itoa(i))
		header, tags := show(name)
		require.Equal(t, http.StatusForbidden, query(0, name, nil))
		require.Equal(t, http.StatusForbidden, query(0, name, append(header, header...), append(tags, tags...)...), "two are none")
		require.Equal(t, http.StatusForbidden, query(0, who(t, "thief"), header, tags...), "it is for one agent")
		require.Equal(t, http.StatusOK, query(0, name, header, tags...))
		require.Equal(t, http.StatusOK, query(1, name, nil), "and known from then on")
	}
	bot := cluster.DialHost(t, c.Gateway(0), host, who(t, "bot1"))
	p := post(t, c.Gateway(1), host, who(t, "bot1"), bot.Event())
	require.Equal(t, http.StatusOK, p.Status, p.Error)
}

// sealed looks like something encrypted; text keeps two of them apart.
func sealed(text string) nostrtest.Option {
	return nostrtest.Content(base64.StdEncoding.EncodeToString(append([]byte{2}, fmt.Appendf(nil, "%120s", text)...)))
}

// toP filters on a kind and whom a p tag names.
func toP(kind nostr.Kind, name string) nostr.Filter {
	return nostr.Filter{
		Kinds: []nostr.Kind{kind},
		Tags:  []nostr.TagCondition{{Name: 'p', Values: []string{nostrtest.PubKey(name).String()}}},
	}
}

// frames go live between an agent and its owner, and nowhere else.
func frames(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	bot, bob := who(t, "bot"), who(t, "bob")
	agent := cluster.Connect(t, c.Gateway(0), bot)
	require.True(t, agent.AuthenticateWith(c.Gateway(0), attestedBy(t, bob, bot, "")).OK)
	owner := cluster.Dial(t, c.Gateway(1), bob)
	mallory := cluster.Dial(t, c.Gateway(1), who(t, "mallory"))
	frame := func(by *cluster.Client, to, of, sort string) *nostr.Event {
		return by.Event(nostrtest.Kind(nostr.KindAgentFrame), against(to), nostrtest.Tag("agent", nostrtest.PubKey(of).String()),
			nostrtest.Tag("frame", sort), sealed(sort))
	}
	const gated = "restricted: p-gated events require #p matching your pubkey"
	require.Equal(t, gated, mallory.Refused(toP(nostr.KindAgentFrame, bob)))
	require.Equal(t, gated, mallory.Refused(nostr.Filter{Kinds: []nostr.Kind{nostr.KindAgentFrame}}))
	atOwner, atAgent := owner.Subscribe(toP(nostr.KindAgentFrame, bob)), agent.Subscribe(toP(nostr.KindAgentFrame, bot))
	wide := mallory.Subscribe(by(bot, bob))

	for what, event := range map[string]*nostr.Event{
		"to somebody else":  frame(agent, who(t, "mallory"), bot, "telemetry"),
		"of no agent":       frame(owner, who(t, "mallory"), who(t, "mallory"), "control"),
		"of another owner":  frame(mallory, bot, bot, "control"),
		"in the wrong way":  frame(owner, bot, bot, "telemetry"),
		"by another agent":  frame(mallory, bob, who(t, "mallory"), "telemetry"),
		"about its owner":   frame(agent, bob, bob, "control"),
		"of an agent's own": frame(agent, bot, bot, "control"),
	} {
		client := map[nostr.PubKey]*cluster.Client{agent.Event().PubKey: agent, owner.Event().PubKey: owner, mallory.Event().PubKey: mallory}[event.PubKey]
		verdict := client.Publish(event)
		require.False(t, verdict.OK, what)
		require.Equal(t, "restricted: observer frame is not authorized for this agent owner", verdict.Message, what)
	}
	require.True(t, agent.Publish(frame(agent, bob, bot, "song")).OK, "what may come is accepted, and not passed on")
	telemetry, control := frame(agent, bob, bot, "telemetry"), frame(owner, bot, bot, "control")
	require.True(t, agent.Publish(telemetry).OK)
	require.Equal(t, telemetry, atOwner.Next())
	require.True(t, owner.Publish(control).OK)
	require.Equal(t, control, atAgent.Next())
	marker := owner.Accept(nostrtest.Content("marker"))
	require.Equal(t, marker, wide.Next(), "nobody else gets any")
	require.Empty(t, owner.Query(toP(nostr.KindAgentFrame, bob)), "none is kept")
	require.Zero(t, owner.Count(toP(nostr.KindAgentFrame, bob)))

	host := strings.TrimPrefix(c.Gateway(0), "ws://")
	p := post(t, c.Gateway(0), host, bot, frame(agent, bob, bot, "telemetry"))
	require.Equal(t, http.StatusBadRequest, p.Status)
	require.Equal(t, "invalid: kind 24200 is only accepted via WebSocket", p.Error)
}

// metrics are read by the agent's owner, whichever door one knocks at.
func metrics(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	bot, bob, eve := who(t, "bot"), who(t, "bob"), who(t, "eve")
	agent := cluster.Connect(t, c.Gateway(0), bot)
	require.True(t, agent.AuthenticateWith(c.Gateway(0), attestedBy(t, bob, bot, "")).OK)
	owner, mallory := cluster.Dial(t, c.Gateway(1), bob), cluster.Dial(t, c.Gateway(0), eve)
	live, wide := owner.Subscribe(toP(nostr.KindTurnMetric, bob)), mallory.Subscribe(by(bot))
	metric := func(to string) *nostr.Event {
		return agent.Event(nostrtest.Kind(nostr.KindTurnMetric), against(to), nostrtest.Tag("agent", nostrtest.PubKey(bot).String()), sealed("metric"))
	}
	verdict := agent.Publish(metric(eve))
	require.False(t, verdict.OK)
	require.Equal(t, "restricted: agent-turn-metric is not for the owner of this agent", verdict.Message)
	event := metric(bob)
	require.True(t, agent.Publish(event).OK)
	require.Equal(t, event, live.Next())

	byID := nostr.Filter{IDs: []nostr.ID{event.ID}}
	host := strings.TrimPrefix(c.Gateway(0), "ws://")
	for name, reads := range map[string]bool{bob: true, eve: false, bot: false} {
		client := map[string]*cluster.Client{bob: owner, eve: mallory, bot: agent}[name]
		var want []*nostr.Event
		if reads {
			want = []*nostr.Event{event}
		}
		for _, f := range []nostr.Filter{byID, by(bot), {Authors: by(bot).Authors, Search: "metric"}} {
			if f.Search != "" {
				require.Empty(t, client.Query(f), "nobody finds it by its text")
				continue
			}
			require.Equal(t, want, client.Query(f))
			require.Equal(t, uint64(len(want)), client.Count(f))
		}
		for path, answers := range map[string][2]string{
			"/query": {`[]`, `[` + string(nostrtest.Raw(event)) + `]`}, "/count": {`{"count":0}`, `{"count":1}`},
		} {
			want := answers[0]
			if reads {
				want = answers[1]
			}
			status, answer := asks(t, c.Gateway(1), host, name, path, `[{"ids":["`+event.ID.String()+`"]}]`)
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, want, answer)
			status, _ = asks(t, c.Gateway(1), host, name, path, `[{"kinds":[44200],"#p":["`+nostrtest.PubKey(bob).String()+`"]}]`)
			require.Equal(t, map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[reads], status)
			status, _ = asks(t, c.Gateway(1), host, name, path, `[{"kinds":[44200],"ids":["`+event.ID.String()+`"]}]`)
			require.Equal(t, http.StatusForbidden, status, "also by its id")
		}
	}
	marker := agent.Accept(nostrtest.Content("marker"))
	require.Equal(t, marker, wide.Next(), "others get none live")
}

// asks posts a body to a path of host.
func asks(t *testing.T, url, host, name, path, body string) (status int, answer string) {
	t.Helper()
	return cluster.HTTP(t, http.MethodPost, url, host, path, http.Header{"Authorization": {cluster.Token(t, host, name, path, body)}}, body)
}

// ownersAct on what their agents say and own.
func ownersAct(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	bot, bob, h := who(t, "bot"), who(t, "bob"), channelID(t)
	agent := cluster.Connect(t, c.Gateway(0), bot)
	require.True(t, agent.AuthenticateWith(c.Gateway(0), attestedBy(t, bob, bot, "")).OK)
	owner, carol := cluster.Dial(t, c.Gateway(1), bob), cluster.Dial(t, c.Gateway(1), who(t, "carol"))
	carol.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(h), nostrtest.Tag("name", "hall"))
	message := agent.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(h), nostrtest.Content("42"))
	edit := []nostrtest.Option{
		nostrtest.Kind(nostr.KindMessageEdit), nostrtest.Channel(h), nostrtest.Tag("e", message.ID.String()), nostrtest.Content("43"),
	}
	verdict := carol.Publish(carol.Event(edit...))
	require.Equal(t, "invalid: edit target not found or not editable by you", verdict.Message)
	sub := carol.Subscribe(in(h))
	edited := owner.Accept(edit...)
	require.Equal(t, edited, sub.Next())

	request := carol.Accept(nostrtest.Kind(nostr.KindJobRequest), nostrtest.Channel(h), against(bot), nostrtest.Content("sum up"))
	about := nostrtest.Tag("e", request.ID.String())
	agent.Accept(nostrtest.Kind(nostr.KindJobAccepted), nostrtest.Channel(h), about)
	verdict = carol.Publish(carol.Event(nostrtest.Kind(nostr.KindJobResult), nostrtest.Channel(h), about))
	require.Equal(t, "invalid: job request not found, or not yours to answer", verdict.Message)
	owner.Accept(nostrtest.Kind(nostr.KindJobCancel), nostrtest.Channel(h), about)

	agent.Accept(nostrtest.Kind(nostr.KindAgentProfile), nostrtest.Content(`{"channel_add_policy":"owner_only"}`))
	verdict = carol.Publish(carol.Event(nostrtest.Kind(nostr.KindPutUser), nostrtest.Channel(h), against(bot)))
	require.False(t, verdict.OK)
	require.Contains(t, verdict.Message, "policy:owner_only — only the agent owner ("+nostrtest.PubKey(bob).String()+") can add this agent")
	order(t, owner, nostr.KindPutUser, nostrtest.Channel(h), against(bot))
	order(t, owner, nostr.KindDeleteEvent, nostrtest.Channel(h), nostrtest.Tag("e", message.ID.String()))
	require.Empty(t, carol.Query(nostr.Filter{IDs: []nostr.ID{message.ID}}))
}

// quotas of agents hold over all their connections.
func quotas(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	bot, bob := who(t, "bot"), who(t, "bob")
	dial := func() *cluster.Client {
		agent := cluster.Connect(t, c.Gateway(0), bot)
		require.True(t, agent.AuthenticateWith(c.Gateway(0), attestedBy(t, bob, bot, "")).OK)
		return agent
	}
	agents := []*cluster.Client{dial(), dial()}
	sent := 0
	verdict := cluster.Verdict{OK: true}
	for i := 0; verdict.OK && i < 1000; i++ {
		agent := agents[i%2]
		verdict = agent.Publish(agent.Event(nostrtest.Content(strconv.Itoa(i))))
		if verdict.OK {
			sent++
		}
	}
	require.Regexp(t, `^rate-limited: quota exceeded; retry in \d+s$`, verdict.Message)
	require.GreaterOrEqual(t, sent, 120)
	require.True(t, agents[0].Publish(agents[0].Event(nostrtest.Kind(nostr.KindTyping))).OK, "what is not kept is not counted")
	owner := cluster.Dial(t, c.Gateway(0), bob)
	owner.Accept(nostrtest.Content("people have no such quota"))
}
