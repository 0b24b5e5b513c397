package cluster_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
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
