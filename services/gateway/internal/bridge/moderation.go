package bridge

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/tenant"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
)

// defaultQueue is how many entries of a moderators' list one answer has unless it is asked for another number.
const defaultQueue = 100

// reportStatuses are the words of the status parameter.
var reportStatuses = map[string]searchv1.ReportStatus{
	"":          searchv1.ReportStatus_REPORT_STATUS_UNSPECIFIED,
	"open":      searchv1.ReportStatus_REPORT_STATUS_OPEN,
	"resolved":  searchv1.ReportStatus_REPORT_STATUS_RESOLVED,
	"dismissed": searchv1.ReportStatus_REPORT_STATUS_DISMISSED,
	"escalated": searchv1.ReportStatus_REPORT_STATUS_ESCALATED,
}

// report is a report in JSON: the signed event, and what became of it. Times are in Unix seconds.
type report struct {
	Event     json.RawMessage `json:"event"`
	Status    string          `json:"status"`
	Action    string          `json:"action,omitempty"`
	DecidedBy string          `json:"decided_by,omitempty"`
	DecidedAt int64           `json:"decided_at,omitempty"`
}

// action is an entry of the log in JSON.
type action struct {
	Action    string `json:"action"`
	Actor     string `json:"actor"`
	CommandID string `json:"command_id,omitempty"`
	PubKey    string `json:"pubkey,omitempty"`
	EventID   string `json:"event_id,omitempty"`
	ReportID  string `json:"report_id,omitempty"`
	Subject   string `json:"subject,omitempty"`
	Reason    string `json:"reason,omitempty"`
	ExpiresAt int64  `json:"expires_at,omitempty"`
	DecidedAt int64  `json:"decided_at"`
}

// restriction is a ban or a timeout in JSON.
type restriction struct {
	PubKey      string `json:"pubkey"`
	Restriction string `json:"restriction"`
	Reason      string `json:"reason,omitempty"`
	DecidedBy   string `json:"decided_by"`
	DecidedAt   int64  `json:"decided_at"`
	ExpiresAt   int64  `json:"expires_at,omitempty"`
}

// Reports answers a GET of a moderator with the newest reports: {"reports": [...]}, those with a status if the
// parameter status says which.
func (b *Bridge) Reports(w http.ResponseWriter, r *http.Request, c session.Community) {
	b.list(w, r, c, func(ctx context.Context, call call, params url.Values, limit uint32) (any, error) {
		status, known := reportStatuses[params.Get("status")]
		if !known {
			return nil, fault.New(fault.Invalid, "status must be open, resolved, dismissed or escalated")
		}
		resp, err := b.Queue.ListReports(ctx, &searchv1.ListReportsRequest{
			Community: c.ID, Actor: call.key[:], Limit: limit, Status: status,
		})
		if err != nil {
			return nil, err
		}
		list := make([]report, len(resp.GetReports()))
		for i, e := range resp.GetReports() {
			list[i] = report{
				Event: e.GetEvent(), Action: e.GetAction(), DecidedBy: hex.EncodeToString(e.GetDecidedBy()), DecidedAt: unix(e.GetDecideTime()),
			}
			for word, status := range reportStatuses {
				if status == e.GetStatus() {
					list[i].Status = word
				}
			}
		}
		return struct {
			Reports []report `json:"reports"`
		}{list}, nil
	})
}

// Audit answers a GET of a moderator with what moderators have done, the latest first: {"actions": [...]}.
func (b *Bridge) Audit(w http.ResponseWriter, r *http.Request, c session.Community) {
	b.list(w, r, c, func(ctx context.Context, call call, _ url.Values, limit uint32) (any, error) {
		resp, err := b.Queue.ListActions(ctx, &searchv1.ListActionsRequest{Community: c.ID, Actor: call.key[:], Limit: limit})
		if err != nil {
			return nil, err
		}
		list := make([]action, len(resp.GetActions()))
		for i, e := range resp.GetActions() {
			list[i] = action{
				Action: e.GetAction(), Actor: hex.EncodeToString(e.GetActor()), CommandID: hex.EncodeToString(e.GetCommandId()),
				PubKey: hex.EncodeToString(e.GetPubkey()), EventID: hex.EncodeToString(e.GetEventId()),
				ReportID: hex.EncodeToString(e.GetReportId()), Subject: e.GetSubject(), Reason: e.GetReason(),
				ExpiresAt: unix(e.GetExpireTime()), DecidedAt: unix(e.GetDecideTime()),
			}
		}
		return struct {
			Actions []action `json:"actions"`
		}{list}, nil
	})
}

// Restricted answers a GET of a moderator with who is banned or timed out, the latest first: {"restricted": [...]}.
func (b *Bridge) Restricted(w http.ResponseWriter, r *http.Request, c session.Community) {
	b.list(w, r, c, func(ctx context.Context, call call, _ url.Values, limit uint32) (any, error) {
		resp, err := b.Queue.ListRestrictions(ctx, &searchv1.ListRestrictionsRequest{Community: c.ID, Actor: call.key[:], Limit: limit})
		if err != nil {
			return nil, err
		}
		list := make([]restriction, len(resp.GetRestrictions()))
		for i, e := range resp.GetRestrictions() {
			list[i] = restriction{
				PubKey: hex.EncodeToString(e.GetPubkey()), Restriction: "timeout", Reason: e.GetReason(),
				DecidedBy: hex.EncodeToString(e.GetDecidedBy()), DecidedAt: unix(e.GetDecideTime()), ExpiresAt: unix(e.GetExpireTime()),
			}
			if e.GetBanned() {
				list[i].Restriction = "ban"
			}
		}
		return struct {
			Restricted []restriction `json:"restricted"`
		}{list}, nil
	})
}

// list serves a list for moderators. Its parameters are a part of the URL that is signed.
func (b *Bridge) list(
	w http.ResponseWriter, r *http.Request, c session.Community,
	read func(ctx context.Context, call call, params url.Values, limit uint32) (any, error),
) {
	b.serve(w, r, c, 0, func(ctx context.Context, call call) ([]byte, error) {
		params, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, "malformed query", err)
		}
		limit := uint64(defaultQueue)
		if text := params.Get("limit"); text != "" {
			if limit, err = strconv.ParseUint(text, 10, 32); err != nil || limit == 0 || limit > tenant.MaxModerationList {
				return nil, fault.New(fault.Invalid, "limit must be 1 to "+strconv.Itoa(tenant.MaxModerationList))
			}
		}
		answer, err := read(ctx, call, params, uint32(limit))
		switch {
		case fault.ReasonOf(err) == fault.Restricted:
			return nil, fault.Wrap(fault.Restricted, "restricted: moderator access required", err)
		case err != nil:
			return nil, err
		}
		return json.Marshal(answer)
	})
}

// unix is 0 for no time.
func unix(t *timestamppb.Timestamp) int64 {
	if t == nil {
		return 0
	}
	return t.AsTime().Unix()
}
