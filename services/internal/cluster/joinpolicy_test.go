package cluster_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// Whoever joins with an invite accepts the operator's terms first, over HTTP and over the WebSocket.
func TestJoinPolicy(t *testing.T) {
	terms := cluster.JoinTerms("# Be <kind>")
	t.Run("all in one", func(t *testing.T) { joinPolicy(t, cluster.AllInOne(t, terms)) })
	t.Run("split", func(t *testing.T) { joinPolicy(t, cluster.New(t, cluster.Gateways(2), cluster.Ingests(2), terms)) })
}

func joinPolicy(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host, other := c.CreateCommunity(t, "terms.example", who(t, "owner")), c.CreateCommunity(t, "elsewhere.example", who(t, "owner"))
	code := mint(t, c.Gateway(0), host, who(t, "owner"), `{"max_uses":2}`)
	status, answer := claim(t, c.Gateway(1), host, who(t, "bob"), "garbage.code")
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, "invite_invalid", answer["error"])
	status, answer = claim(t, c.Gateway(1), host, who(t, "bob"), code)
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, "join_policy_required", answer["error"])

	// What there is to accept anybody may read.
	var asked struct {
		Policy struct {
			Terms   string `json:"terms_markdown"`
			Age     bool   `json:"age_attestation_required"`
			Version string
		}
	}
	status, text := cluster.HTTP(t, http.MethodGet, c.Gateway(1), host, "/api/join-policy", nil, "")
	require.Equal(t, http.StatusOK, status)
	require.NoError(t, json.Unmarshal([]byte(text), &asked))
	require.Equal(t, "# Be <kind>", asked.Policy.Terms)
	require.True(t, asked.Policy.Age)
	status, text = cluster.HTTP(t, http.MethodGet, c.Gateway(0), host, "/terms", nil, "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "# Be &lt;kind&gt;")
	status, text = cluster.HTTP(t, http.MethodGet, c.Gateway(0), host, "/privacy", nil, "")
	require.Equal(t, http.StatusNotFound, status)
	require.JSONEq(t, `{"error":"join_policy_not_configured"}`, text)
	status, _ = cluster.HTTP(t, http.MethodGet, c.Gateway(0), "nobody.example", "/terms", nil, "")
	require.Equal(t, http.StatusNotFound, status)

	accept := func(host, version string, age bool) (int, string) {
		body, err := json.Marshal(map[string]any{"code": code, "policy_version": version, "age_confirmed": age})
		require.NoError(t, err)
		status, text := cluster.HTTP(t, http.MethodPost, c.Gateway(1), host, "/api/invites/accept-policy", nil, string(body))
		var answer struct{ Receipt string }
		if status == http.StatusOK {
			require.NoError(t, json.Unmarshal([]byte(text), &answer), text)
			return status, answer.Receipt
		}
		return status, text
	}
	status, text = accept(host, asked.Policy.Version, false)
	require.Equal(t, http.StatusBadRequest, status)
	require.JSONEq(t, `{"error":"join_policy_not_accepted","reason":"age"}`, text)
	for _, age := range []bool{true, false} {
		status, text = accept(host, "another", age)
		require.Equal(t, http.StatusBadRequest, status)
		require.JSONEq(t, `{"error":"join_policy_not_accepted","reason":"policy_version"}`, text)
	}
	status, elsewhere := accept(other, asked.Policy.Version, true)
	require.Equal(t, http.StatusOK, status)
	status, receipt := accept(host, asked.Policy.Version, true)
	require.Equal(t, http.StatusOK, status)

	with := func(name, receipt string) (int, map[string]any) {
		return callAPI(t, c.Gateway(0), host, who(t, name), "/api/invites/claim", `{"code":"`+code+`","policy_receipt":"`+receipt+`"}`)
	}
	status, answer = with("bob", elsewhere)
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, "join_policy_required", answer["error"])
	status, answer = with("bob", receipt)
	require.Equal(t, http.StatusOK, status, answer)
	require.Equal(t, "joined", answer["status"])
	cluster.DialHost(t, c.Gateway(1), host, who(t, "bob")).Accept(nostrtest.Content("I am kind"))

	carol := cluster.ConnectHost(t, c.Gateway(1), host, who(t, "carol"))
	require.True(t, carol.Authenticate("ws://"+host).OK)
	join := func(tags ...nostrtest.Option) cluster.Verdict {
		return carol.Publish(carol.Event(append(tags, nostrtest.Kind(nostr.KindRelayJoinRequest), nostrtest.Tag("claim", code))...))
	}
	require.Equal(t, cluster.Verdict{Message: "restricted: join_policy_required"}, join())
	require.Equal(t, cluster.Verdict{OK: true, Message: "info: welcome to this relay"}, join(nostrtest.Tag("policy_receipt", receipt)))
	carol.Accept(nostrtest.Content("so am I"))
}
