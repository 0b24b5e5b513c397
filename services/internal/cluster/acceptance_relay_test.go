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

func relayInfo(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	status, text := cluster.HTTP(t, http.MethodGet, c.Gateway(0), "localhost", "/info", nil, "")
	require.Equal(t, http.StatusOK, status)
	var info struct {
		Name, Description, Version *string
		SupportedNIPs              []int `json:"supported_nips"`
		Limitation                 struct {
			MaxSubscriptions int  `json:"max_subscriptions"`
			AuthRequired     bool `json:"auth_required"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &info))
	require.NotNil(t, info.Name)
	require.NotNil(t, info.Description)
	require.NotNil(t, info.Version)
	require.Subset(t, info.SupportedNIPs, []int{1, 11, 29, 42})
	require.Equal(t, 1024, info.Limitation.MaxSubscriptions)
	require.True(t, info.Limitation.AuthRequired)
}

func rostersAreTheRelays(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "roster.example", who(t, "owner"))
	name := who(t, "alice")
	c.PutMember(t, host, name)
	alice := cluster.DialHost(t, c.Gateway(0), host, name)
	roster := alice.Event(nostrtest.Kind(nostr.KindRelayMembers), nostrtest.Tag("-"), nostrtest.Tag("member", nostrtest.PubKey(name).String(), "owner"))
	require.Equal(t, cluster.Verdict{Message: "restricted: relay-only kind"}, alice.Publish(roster))
	answer := post(t, c.Gateway(1), host, name, roster)
	require.GreaterOrEqual(t, answer.Status, http.StatusBadRequest)
	require.Equal(t, "restricted: relay-only kind", answer.Error)
	for _, list := range alice.Query(nostr.Filter{Kinds: []nostr.Kind{nostr.KindRelayMembers}}) {
		require.Equal(t, nostrtest.PubKey(cluster.RelayKey), list.PubKey)
	}
}

// claim uses an invite code.
func claim(t *testing.T, url, host, name, code string) (status int, answer map[string]any) {
	t.Helper()
	return callAPI(t, url, host, name, "/api/invites/claim", `{"code":"`+code+`"}`)
}

func mintAndClaim(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "mint.example", who(t, "owner"))
	code := mint(t, c.Gateway(0), host, who(t, "owner"), `{}`)
	status, answer := claim(t, c.Gateway(1), host, who(t, "bob"), code)
	require.Equal(t, http.StatusOK, status, answer)
	require.Equal(t, "joined", answer["status"])
	require.Equal(t, "member", answer["role"])
	require.Equal(t, host, answer["host"])
	cluster.DialHost(t, c.Gateway(1), host, who(t, "bob")).Accept(nostrtest.Content("here I am"))
	status, answer = claim(t, c.Gateway(0), host, who(t, "bob"), code)
	require.Equal(t, http.StatusOK, status, answer)
	require.Equal(t, "already_member", answer["status"])
}

func claimOfNothing(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "garbage.example", who(t, "owner"))
	status, answer := claim(t, c.Gateway(0), host, who(t, "bob"), "garbage.code")
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, map[string]any{"error": "invite_invalid"}, answer)
}

func mintingIsForManagers(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "managers.example", who(t, "owner"))
	c.PutMember(t, host, who(t, "member"))
	for _, name := range []string{"member", "outsider"} {
		status, answer := callAPI(t, c.Gateway(0), host, who(t, name), "/api/invites", `{}`)
		require.Equal(t, http.StatusForbidden, status, name)
		require.NotContains(t, answer, "code")
	}
	owner := cluster.DialHost(t, c.Gateway(0), host, who(t, "owner"))
	order(t, owner, nostr.KindRelayChangeRole, against(who(t, "member")), nostrtest.Tag("role", "admin"))
	mint(t, c.Gateway(1), host, who(t, "member"), `{}`)
}

func codesStayAtHome(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "home.example", who(t, "owner"))
	other := c.CreateCommunity(t, "abroad.example", who(t, "owner"))
	code := mint(t, c.Gateway(0), host, who(t, "owner"), `{}`)
	status, answer := claim(t, c.Gateway(1), other, who(t, "bob"), code)
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, map[string]any{"error": "invite_invalid"}, answer, "as of one that was never made")
	status, answer = claim(t, c.Gateway(1), host, who(t, "bob"), code)
	require.Equal(t, http.StatusOK, status, answer)
}
