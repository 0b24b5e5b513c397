package gateway_test

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// manage calls the management API (NIP-86) as alice.
func (w *world) manage(body string) (status int, answer string) {
	w.tb.Helper()
	head := token(w.tb, "alice", "/", body)
	head.Set("Content-Type", "application/nostr+json+rpc; charset=utf-8")
	status, _, answer = w.requestBody(http.MethodPost, openHost, "/", head, body)
	return status, answer
}

func TestManagementChanges(t *testing.T) {
	w := newWorld(t)
	alice := nostrtest.PubKey("alice")
	id := strings.Repeat("ab", 32)
	raw, err := hex.DecodeString(id)
	require.NoError(t, err)
	for _, tt := range []struct {
		body string
		want *ingestv1.ModerateRequest
	}{
		{`{"method":"banpubkey","params":["` + id + `","spam"]}`, &ingestv1.ModerateRequest{Reason: "spam", Change: &ingestv1.ModerateRequest_BanPubkey{BanPubkey: raw}}},
		{`{"method":"unbanpubkey","params":["` + id + `"]}`, &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_UnbanPubkey{UnbanPubkey: raw}}},
		{`{"method":"allowpubkey","params":["` + id + `",null]}`, &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_AllowPubkey{AllowPubkey: raw}}},
		{`{"method":"unallowpubkey","params":["` + id + `"]}`, &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_UnallowPubkey{UnallowPubkey: raw}}},
		{`{"method":"banevent","params":["` + id + `","off"]}`, &ingestv1.ModerateRequest{Reason: "off", Change: &ingestv1.ModerateRequest_BanEvent{BanEvent: raw}}},
		{`{"method":"allowevent","params":["` + id + `"]}`, &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_AllowEvent{AllowEvent: raw}}},
		{`{"method":"allowkind","params":[1]}`, &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_AllowKind{AllowKind: 1}}},
		{`{"method":"disallowkind","params":[65535]}`, &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_DisallowKind{DisallowKind: 65535}}},
		{`{"method":"blockip","params":["192.0.2.7","rude"]}`, &ingestv1.ModerateRequest{Reason: "rude", Change: &ingestv1.ModerateRequest_BlockIp{BlockIp: "192.0.2.7"}}},
		{`{"method":"unblockip","params":["2001:db8::/32"]}`, &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_UnblockIp{UnblockIp: "2001:db8::/32"}}},
		{`{"method":"changerelayname","params":["Bees"]}`, &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_Name{Name: "Bees"}}},
		{`{"method":"changerelaydescription","params":[""]}`, &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_Description{}}},
		{`{"method":"changerelayicon","params":["https://x/i.png"]}`, &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_Icon{Icon: "https://x/i.png"}}},
		{`{"method":"changerelayminpow","params":[20]}`, &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_MinPow{MinPow: 20}}},
	} {
		status, answer := w.manage(tt.body)
		require.Equal(t, http.StatusOK, status, "%s: %s", tt.body, answer)
		require.JSONEq(t, `{"result":true}`, answer)
		got := w.moderation.take()
		require.Len(t, got, 1)
		require.EqualValues(t, openCommunity, got[0].GetCommunity())
		require.Equal(t, alice[:], got[0].GetActor())
		require.Equal(t, tt.want.GetReason(), got[0].GetReason(), tt.body)
		require.Equal(t, tt.want.GetChange(), got[0].GetChange(), tt.body)
	}
}

// Who removes an agent that its owner admits all the same is told so, as by kind 9031.
func TestManagementOfAgents(t *testing.T) {
	w := newWorld(t)
	owner := nostrtest.PubKey("bob")
	w.moderation.admittedBy = owner[:]
	status, answer := w.manage(`{"method":"unallowpubkey","params":["` + strings.Repeat("ab", 32) + `"]}`)
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"result":true,"admitted_by":"`+owner.String()+`"}`, answer)
}

func TestManagementLists(t *testing.T) {
	w := newWorld(t)
	status, answer := w.manage(`{"method":"listbannedpubkeys","params":[]}`)
	require.Equal(t, http.StatusForbidden, status)
	require.JSONEq(t, `{"error":"not allowed"}`, answer)

	alice := nostrtest.PubKey("alice")
	w.search.set(func() {
		w.search.onList = func(r *searchv1.ListModerationRequest) []*searchv1.ModerationEntry {
			if r.GetCommunity() != openCommunity || string(r.GetActor()) != string(alice[:]) {
				return nil
			}
			switch r.GetList() {
			case searchv1.ModerationList_MODERATION_LIST_ALLOWED_KINDS:
				return []*searchv1.ModerationEntry{{Value: "1"}, {Value: "30023"}}
			case searchv1.ModerationList_MODERATION_LIST_REPORTED_EVENTS:
				return nil
			default:
				return []*searchv1.ModerationEntry{{Value: r.GetList().String(), Reason: "why"}, {Value: "x"}}
			}
		}
	})
	for method, want := range map[string]string{
		"listbannedpubkeys":           `{"result":[{"pubkey":"MODERATION_LIST_BANNED_PUBKEYS","reason":"why"},{"pubkey":"x"}]}`,
		"listallowedpubkeys":          `{"result":[{"pubkey":"MODERATION_LIST_ALLOWED_PUBKEYS","reason":"why"},{"pubkey":"x"}]}`,
		"listbannedevents":            `{"result":[{"id":"MODERATION_LIST_BANNED_EVENTS","reason":"why"},{"id":"x"}]}`,
		"listeventsneedingmoderation": `{"result":[]}`,
		"listblockedips":              `{"result":[{"ip":"MODERATION_LIST_BLOCKED_IPS","reason":"why"},{"ip":"x"}]}`,
		"listallowedkinds":            `{"result":[1,30023]}`,
	} {
		status, answer := w.manage(`{"method":"` + method + `","params":[]}`)
		require.Equal(t, http.StatusOK, status, answer)
		require.JSONEq(t, want, answer, method)
	}
}

func TestSupportedMethods(t *testing.T) {
	w := newWorld(t)
	status, answer := w.manage(`{"method":"supportedmethods","params":[]}`)
	require.Equal(t, http.StatusOK, status)
	var got struct{ Result []string }
	require.NoError(t, json.Unmarshal([]byte(answer), &got))
	require.Subset(t, got.Result, []string{"banpubkey", "unbanpubkey", "listblockedips", "changerelayicon"})
	require.NotContains(t, got.Result, "supportedmethods", "the other ones")
	require.NotContains(t, got.Result, "createrole")
}

func TestManagementRefusals(t *testing.T) {
	w := newWorld(t)
	id := strings.Repeat("ab", 32)
	for body, part := range map[string]string{
		`[]`:                                     "an object with a method",
		`{"method":"createrole","params":[1]}`:   "unknown method",
		`{"method":"banpubkey"}`:                 "needs a parameter",
		`{"method":"banpubkey","params":[7]}`:    "must be a string",
		`{"method":"banpubkey","params":[null]}`: "must be a string",
		`{"method":"banpubkey","params":["` + strings.ToUpper(id) + `"]}`: "hexadecimal",
		`{"method":"banpubkey","params":["` + id + `",7]}`:                "must be a string",
		`{"method":"allowkind","params":["1"]}`:                           "a kind must be a number",
		`{"method":"allowkind","params":[65536]}`:                         "from 0 to 65535",
		`{"method":"allowkind","params":[-1]}`:                            "from 0 to 65535",
		`{"method":"changerelayminpow","params":[65]}`:                    "from 0 to 64",
		`{"method":"blockip","params":["300.1.1.1"]}`:                     "an address or network",
		`{"method":"blockip","params":["fe80::1%eth0"]}`:                  "an address or network",
	} {
		status, answer := w.manage(body)
		require.Equal(t, http.StatusBadRequest, status, body)
		require.Contains(t, answer, part, body)
	}
	require.Empty(t, w.moderation.take())

	w.moderation.set(func() { w.moderation.err = fault.New(fault.Restricted, "only owners and admins may moderate") })
	status, answer := w.manage(`{"method":"banpubkey","params":["` + id + `"]}`)
	require.Equal(t, http.StatusForbidden, status)
	require.JSONEq(t, `{"error":"only owners and admins may moderate"}`, answer)

	head := http.Header{"Content-Type": {"application/nostr+json+rpc"}}
	status, _, answer = w.requestBody(http.MethodPost, openHost, "/", head, `{"method":"supportedmethods","params":[]}`)
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, answer, "NIP-98")
	status, _ = w.manage(`{"method":"` + strings.Repeat("x", 40_000) + `"}`)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
}
