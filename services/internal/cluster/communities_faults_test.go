package cluster_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// stage asks how far the deletion of a community is, wherever somebody answers.
func stage(t *testing.T, c *cluster.Cluster, request string) string {
	t.Helper()
	status, text := cluster.Operate(t, c.Gateway(0), http.MethodPost, "/operator/communities/delete", request)
	var answer struct{ Stage string }
	if status != http.StatusOK || json.Unmarshal([]byte(text), &answer) != nil {
		return text
	}
	return answer.Stage
}

// TestADeletionSurvivesItsReplicas has the replicas of ingest killed one after the other as soon as they have a deletion in
// hand: it is finished all the same, and the request is still the same one.
func TestADeletionSurvivesItsReplicas(t *testing.T) {
	c := cluster.New(t, cluster.Ingests(2))
	host, other := c.CreateCommunity(t, "doomed.example", who(t, "alice")), c.CreateCommunity(t, "spared.example", who(t, "alice"))
	var spared []string
	for _, at := range []string{host, other} {
		alice := cluster.DialHost(t, c.Gateway(0), at, who(t, "alice"))
		spared = nil
		for n := range 300 { // rows for several steps
			event := alice.Accept(nostrtest.Content(fmt.Sprint(at, " ", n)), nostrtest.Tag("t", "a"), nostrtest.Tag("t", strconv.Itoa(n)))
			spared = append(spared, event.ID.String())
		}
	}
	owner := fmt.Sprintf(`{"host":%q,"owner_pubkey":%q}`, host, hexOf(t, "alice"))
	request := fmt.Sprintf(`{"host":%q,"owner_pubkey":%q,"request_id":"doom"}`, host, hexOf(t, "alice"))
	operate(t, c, 0, http.StatusOK, http.MethodPost, "/archive", owner)
	operate(t, c, 0, http.StatusOK, http.MethodPost, "/delete", request)
	for _, name := range []string{"ingest-1", "ingest-2"} {
		c.Kill(t, name)
		c.Restart(t, name)
	}
	require.Eventually(t, func() bool { return stage(t, c, request) == "deleted" }, 2*time.Minute, 200*time.Millisecond)
	require.Equal(t, http.StatusNotFound, handshake(t, c.Gateway(0), host))
	alice := cluster.DialHost(t, c.Gateway(0), other, who(t, "alice"))
	require.ElementsMatch(t, spared, ids(alice.Query(by(who(t, "alice")))))
}

// TestAnArchivalWithoutNATS holds at once, and says that sockets may be open; they end when NATS is back.
func TestAnArchivalWithoutNATS(t *testing.T) {
	c := cluster.New(t)
	host := c.CreateCommunity(t, "quiet.example", who(t, "alice"))
	alice := cluster.DialHost(t, c.Gateway(0), host, who(t, "alice"))
	event := alice.Accept(nostrtest.Content("before"))
	c.NATS().Stop(t)
	owner := fmt.Sprintf(`{"host":%q,"owner_pubkey":%q}`, host, hexOf(t, "alice"))
	answer := operate(t, c, 0, http.StatusServiceUnavailable, http.MethodPost, "/archive", owner)
	require.Equal(t, []any{"pending", "archived", host, "unavailable"}, []any{answer["propagation"], answer["status"], answer["host"], answer["code"]})
	if verdict, err := alice.TryPublish(alice.Event(nostrtest.Content("after"))); err == nil {
		require.False(t, verdict.OK)
	}
	if found, err := alice.TryQuery(nostr.Filter{IDs: []nostr.ID{event.ID}}); err == nil {
		require.Empty(t, found)
	}
	c.NATS().Restart(t)
	_, reason := alice.Ended()
	require.Equal(t, "error: this community is not served any more", reason)
	var again map[string]any
	require.Eventually(t, func() bool { // ingest may come back to NATS later than the gateway
		status, text := cluster.Operate(t, c.Gateway(0), http.MethodPost, "/operator/communities/archive", owner)
		return status == http.StatusOK && json.Unmarshal([]byte(text), &again) == nil
	}, time.Minute, 100*time.Millisecond)
	require.Equal(t, answer["archived_at"], again["archived_at"])
}
