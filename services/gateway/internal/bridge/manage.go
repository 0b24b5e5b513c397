package bridge

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"mime"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
)

// mediaType is the media type of NIP-86 requests.
const mediaType = "application/nostr+json+rpc"

// IsManagement reports whether a request is one of the management API.
func IsManagement(r *http.Request) bool {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && r.Method == http.MethodPost && t == mediaType
}

// Manage answers a call of the management API (NIP-86).
func (b *Bridge) Manage(w http.ResponseWriter, r *http.Request, c session.Community) {
	b.serve(w, r, c, maxCommand, func(ctx context.Context, call call) ([]byte, error) {
		var command struct {
			Method string  `json:"method"`
			Params []param `json:"params"`
		}
		if err := json.Unmarshal(call.body, &command); err != nil {
			return nil, fault.Wrap(fault.Invalid, "the body must be an object with a method and an array of params", err)
		}
		done, err := b.command(ctx, call, command.Method, command.Params)
		if err != nil {
			return nil, err
		}
		return json.Marshal(done)
	})
}

// managed is what a call has come to.
type managed struct {
	Result any `json:"result"`
	// AdmittedBy is our own: who has removed an agent learns that its owner admits it all the same (NIP-OA), as from kind 9031.
	AdmittedBy string `json:"admitted_by,omitempty"`
}

func (b *Bridge) command(ctx context.Context, call call, method string, params []param) (managed, error) {
	if method == "supportedmethods" {
		return managed{Result: supported}, nil
	}
	if list, ok := lists[method]; ok {
		resp, err := b.Lists.ListModeration(ctx, &searchv1.ListModerationRequest{
			Community: call.community.ID, Actor: call.key[:], List: list.list,
		})
		if err != nil {
			return managed{}, err
		}
		rendered, err := list.render(resp.GetEntries())
		return managed{Result: rendered}, err
	}
	change, ok := changes[method]
	if !ok {
		return managed{}, fault.New(fault.Invalid, "unknown method: see supportedmethods")
	}
	request := &ingestv1.ModerateRequest{Community: call.community.ID, Actor: call.key[:]}
	if len(params) == 0 {
		return managed{}, fault.New(fault.Invalid, method+" needs a parameter")
	}
	if err := change(request, params[0]); err != nil {
		return managed{}, err
	}
	if len(params) > 1 && string(params[1]) != "null" {
		reason, err := params[1].text()
		if err != nil {
			return managed{}, err
		}
		request.Reason = reason
	}
	done, err := b.Moderation.Moderate(ctx, request)
	if err != nil {
		return managed{}, err
	}
	return managed{Result: true, AdmittedBy: hex.EncodeToString(done.GetAdmittedBy())}, nil
}

// changes are the methods that change something: how the first parameter becomes the change. The second
// parameter is always the reason, if there is one. changerelayminpow is our own: NIP-86 has none for what
// NIP-11 calls min_pow_difficulty.
var changes = map[string]func(*ingestv1.ModerateRequest, param) error{
	"banpubkey": func(r *ingestv1.ModerateRequest, p param) error {
		key, err := p.key()
		r.Change = &ingestv1.ModerateRequest_BanPubkey{BanPubkey: key}
		return err
	},
	"unbanpubkey": func(r *ingestv1.ModerateRequest, p param) error {
		key, err := p.key()
		r.Change = &ingestv1.ModerateRequest_UnbanPubkey{UnbanPubkey: key}
		return err
	},
	"allowpubkey": func(r *ingestv1.ModerateRequest, p param) error {
		key, err := p.key()
		r.Change = &ingestv1.ModerateRequest_AllowPubkey{AllowPubkey: key}
		return err
	},
	"unallowpubkey": func(r *ingestv1.ModerateRequest, p param) error {
		key, err := p.key()
		r.Change = &ingestv1.ModerateRequest_UnallowPubkey{UnallowPubkey: key}
		return err
	},
	"banevent": func(r *ingestv1.ModerateRequest, p param) error {
		id, err := p.key()
		r.Change = &ingestv1.ModerateRequest_BanEvent{BanEvent: id}
		return err
	},
	"allowevent": func(r *ingestv1.ModerateRequest, p param) error {
		id, err := p.key()
		r.Change = &ingestv1.ModerateRequest_AllowEvent{AllowEvent: id}
		return err
	},
	"allowkind": func(r *ingestv1.ModerateRequest, p param) error {
		kind, err := p.number("a kind", 1<<16-1)
		r.Change = &ingestv1.ModerateRequest_AllowKind{AllowKind: kind}
		return err
	},
	"disallowkind": func(r *ingestv1.ModerateRequest, p param) error {
		kind, err := p.number("a kind", 1<<16-1)
		r.Change = &ingestv1.ModerateRequest_DisallowKind{DisallowKind: kind}
		return err
	},
	"blockip": func(r *ingestv1.ModerateRequest, p param) error {
		network, err := p.network()
		r.Change = &ingestv1.ModerateRequest_BlockIp{BlockIp: network}
		return err
	},
	"unblockip": func(r *ingestv1.ModerateRequest, p param) error {
		network, err := p.network()
		r.Change = &ingestv1.ModerateRequest_UnblockIp{UnblockIp: network}
		return err
	},
	"changerelayname": func(r *ingestv1.ModerateRequest, p param) error {
		text, err := p.text()
		r.Change = &ingestv1.ModerateRequest_Name{Name: text}
		return err
	},
	"changerelaydescription": func(r *ingestv1.ModerateRequest, p param) error {
		text, err := p.text()
		r.Change = &ingestv1.ModerateRequest_Description{Description: text}
		return err
	},
	"changerelayicon": func(r *ingestv1.ModerateRequest, p param) error {
		text, err := p.text()
		r.Change = &ingestv1.ModerateRequest_Icon{Icon: text}
		return err
	},
	"changerelayminpow": func(r *ingestv1.ModerateRequest, p param) error {
		bits, err := p.number("a difficulty", 64)
		r.Change = &ingestv1.ModerateRequest_MinPow{MinPow: bits}
		return err
	},
}

// list is a method that lists something.
type list struct {
	list   searchv1.ModerationList
	render func([]*searchv1.ModerationEntry) (any, error)
}

var lists = map[string]list{
	"listbannedpubkeys":           {searchv1.ModerationList_MODERATION_LIST_BANNED_PUBKEYS, objects("pubkey")},
	"listallowedpubkeys":          {searchv1.ModerationList_MODERATION_LIST_ALLOWED_PUBKEYS, objects("pubkey")},
	"listbannedevents":            {searchv1.ModerationList_MODERATION_LIST_BANNED_EVENTS, objects("id")},
	"listeventsneedingmoderation": {searchv1.ModerationList_MODERATION_LIST_REPORTED_EVENTS, objects("id")},
	"listblockedips":              {searchv1.ModerationList_MODERATION_LIST_BLOCKED_IPS, objects("ip")},
	"listallowedkinds":            {searchv1.ModerationList_MODERATION_LIST_ALLOWED_KINDS, numbers},
}

// objects renders entries as objects with their value under a name and the reason, if there is one.
func objects(name string) func([]*searchv1.ModerationEntry) (any, error) {
	return func(entries []*searchv1.ModerationEntry) (any, error) {
		all := make([]map[string]string, len(entries))
		for i, e := range entries {
			all[i] = map[string]string{name: e.GetValue()}
			if e.GetReason() != "" {
				all[i]["reason"] = e.GetReason()
			}
		}
		return all, nil
	}
}

// numbers renders entries as numbers.
func numbers(entries []*searchv1.ModerationEntry) (any, error) {
	all := make([]uint64, len(entries))
	for i, e := range entries {
		n, err := strconv.ParseUint(e.GetValue(), 10, 16)
		if err != nil {
			return nil, fault.Internal(err)
		}
		all[i] = n
	}
	return all, nil
}

// supported is the answer to supportedmethods.
var supported = methods()

func methods() []string {
	var all []string
	for name := range changes {
		all = append(all, name)
	}
	for name := range lists {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// param is a parameter of a call, as JSON.
type param json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (p *param) UnmarshalJSON(b []byte) error {
	*p = append((*p)[:0], b...)
	return nil
}

func (p param) text() (string, error) {
	var s *string
	if err := json.Unmarshal(p, &s); err != nil || s == nil {
		return "", fault.New(fault.Invalid, "a parameter must be a string")
	}
	return *s, nil
}

// key takes a public key or an event id: both are 32 bytes in hexadecimal.
func (p param) key() ([]byte, error) {
	s, err := p.text()
	if err != nil {
		return nil, err
	}
	id, err := nostr.ParseID(s)
	if err != nil {
		return nil, fault.New(fault.Invalid, "a key or id must be 64 lower-case hexadecimal digits")
	}
	return id[:], nil
}

func (p param) number(what string, most uint32) (uint32, error) {
	var n *uint32
	if err := json.Unmarshal(p, &n); err != nil || n == nil || *n > most {
		return 0, fault.New(fault.Invalid, what+" must be a number from 0 to "+strconv.FormatUint(uint64(most), 10))
	}
	return *n, nil
}

// network takes an address or a network in CIDR form.
func (p param) network() (string, error) {
	s, err := p.text()
	if err != nil {
		return "", err
	}
	if _, err := netip.ParsePrefix(s); err == nil {
		return s, nil
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return s, nil
	}
	return "", fault.New(fault.Invalid, "an address or network must be like 192.0.2.1 or 2001:db8::/32")
}
