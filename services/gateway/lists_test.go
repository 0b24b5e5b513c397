package gateway_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// queue is what search says to moderators, of whom alice is the only one.
type queue struct {
	searchv1.UnimplementedModerationServiceServer
	reports chan *searchv1.ListReportsRequest
}

func refuseStrangers(actor []byte) error {
	if alice := nostrtest.PubKey("alice"); string(actor) != string(alice[:]) {
		return fault.New(fault.Restricted, "not an owner or admin of the community")
	}
	return nil
}

// ListReports implements searchv1.ModerationServiceServer.
func (q *queue) ListReports(_ context.Context, req *searchv1.ListReportsRequest) (*searchv1.ListReportsResponse, error) {
	q.reports <- req
	return &searchv1.ListReportsResponse{Reports: []*searchv1.ReportEntry{
		{Event: []byte(`{"id":"1"}`), Status: searchv1.ReportStatus_REPORT_STATUS_OPEN},
		{
			Event: []byte(`{"id":"2"}`), Status: searchv1.ReportStatus_REPORT_STATUS_ESCALATED, Action: "escalate",
			DecidedBy: []byte{1}, DecideTime: timestamppb.New(time.Unix(7, 0)),
		},
	}}, refuseStrangers(req.GetActor())
}

// ListActions implements searchv1.ModerationServiceServer.
func (*queue) ListActions(_ context.Context, req *searchv1.ListActionsRequest) (*searchv1.ListActionsResponse, error) {
	return &searchv1.ListActionsResponse{}, refuseStrangers(req.GetActor())
}

// ListRestrictions implements searchv1.ModerationServiceServer.
func (*queue) ListRestrictions(_ context.Context, req *searchv1.ListRestrictionsRequest) (*searchv1.ListRestrictionsResponse, error) {
	return &searchv1.ListRestrictionsResponse{Restrictions: []*searchv1.RestrictionEntry{
		{Pubkey: []byte{2}, Banned: true, DecidedBy: []byte{1}, DecideTime: timestamppb.New(time.Unix(7, 0))},
		{Pubkey: []byte{3}, Reason: "loud", DecidedBy: []byte{1}, DecideTime: timestamppb.New(time.Unix(7, 0)), ExpireTime: timestamppb.New(time.Unix(9, 0))},
	}}, refuseStrangers(req.GetActor())
}

// get makes a GET of a path, signed for another one unless it is the same.
func (w *world) get(name, path, signedPath string) (status int, answer string) {
	w.tb.Helper()
	ev := nostrtest.Event(w.tb, name, nostrtest.Kind(nostr.KindHTTPAuth), nostrtest.CreatedAt(time.Now().Unix()),
		nostrtest.Tag("u", "https://"+openHost+signedPath), nostrtest.Tag("method", "GET"),
		nostrtest.Tag("nonce", strconv.FormatInt(nonce.Add(1), 10)))
	status, head, answer := w.request(http.MethodGet, openHost, path, http.Header{
		"Authorization": {"Nostr " + base64.StdEncoding.EncodeToString(nostrtest.Raw(ev))},
	})
	require.Equal(w.tb, "no-store", head.Get("Cache-Control"))
	return status, answer
}

func TestListsForModerators(t *testing.T) {
	w := newWorld(t)
	const reports = "/moderation/reports"
	status, answer := w.get("alice", reports+"?status=open&limit=7", reports+"?status=open&limit=7")
	require.Equal(t, http.StatusOK, status, answer)
	require.JSONEq(t, `{"reports":[
		{"event":{"id":"1"},"status":"open"},
		{"event":{"id":"2"},"status":"escalated","action":"escalate","decided_by":"01","decided_at":7}]}`, answer)
	asked := take(t, w.queue.reports)
	require.EqualValues(t, 7, asked.GetLimit())
	require.Equal(t, searchv1.ReportStatus_REPORT_STATUS_OPEN, asked.GetStatus())
	_, answer = w.get("alice", "/moderation/audit", "/moderation/audit")
	require.JSONEq(t, `{"actions":[]}`, answer)
	_, answer = w.get("alice", "/moderation/restricted", "/moderation/restricted")
	require.JSONEq(t, `{"restricted":[
		{"pubkey":"02","restriction":"ban","decided_by":"01","decided_at":7},
		{"pubkey":"03","restriction":"timeout","reason":"loud","decided_by":"01","decided_at":7,"expires_at":9}]}`, answer)

	status, answer = w.get("bob", "/moderation/audit", "/moderation/audit")
	require.Equal(t, http.StatusForbidden, status)
	require.JSONEq(t, `{"error":"restricted: moderator access required"}`, answer)
	for query, want := range map[string]string{
		"?limit=0":      `{"error":"limit must be 1 to 500"}`,
		"?limit=501":    `{"error":"limit must be 1 to 500"}`,
		"?limit=x":      `{"error":"limit must be 1 to 500"}`,
		"?status=known": `{"error":"status must be open, resolved, dismissed or escalated"}`,
		"?%zz":          `{"error":"malformed query"}`,
	} {
		status, answer = w.get("alice", reports+query, reports+query)
		require.Equal(t, http.StatusBadRequest, status, query)
		require.JSONEq(t, want, answer)
	}
	status, _ = w.get("alice", reports+"?limit=7", reports)
	require.Equal(t, http.StatusUnauthorized, status, "the query is signed as well")
	status, head, _ := w.request(http.MethodPost, openHost, reports, nil)
	require.Equal(t, http.StatusMethodNotAllowed, status)
	require.Equal(t, "GET, OPTIONS", head.Get("Allow"))
}
