package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
)

// Submit answers a POST of one event with its verdict: {"event_id", "accepted", "message"}, where the message is that of
// the OK. What an OK would refuse is an error with the same words, except that something exists already: that is a verdict.
func (b *Bridge) Submit(w http.ResponseWriter, r *http.Request, c session.Community) {
	var ev *nostr.Event
	may := func(ctx context.Context, call *call) (err error) {
		if wait, ok := b.Gate.CallEvent(call.caller(), time.Now()); !ok {
			return asFrame(session.QuotaExceeded(wait))
		}
		// Around the event there may be white space, which is no part of what is stored.
		call.body = bytes.Trim(call.body, " \t\r\n")
		if ev, err = wire.DecodeEvent(call.body, b.cfg.Wire); err != nil {
			return fault.Wrap(fault.Invalid, "invalid event JSON: "+publicCause(err), err)
		}
		return asFrame(b.Sessions.MayPublish(ctx, call.community, call.client, call.key, call.attestation, ev))
	}
	b.serveIf(w, r, c, b.cfg.Wire.Frame, may, func(ctx context.Context, call call) ([]byte, error) {
		v := b.Sessions.Publish(ctx, call.community, call.key, ev.ID, call.body)
		if !fault.Succeeded(v.Reason) && v.Reason != fault.Exists {
			return nil, asFrame(fault.New(v.Reason, v.Message))
		}
		return json.Marshal(struct {
			EventID  string `json:"event_id"`
			Accepted bool   `json:"accepted"`
			Message  string `json:"message"`
		}{ev.ID.String(), fault.Succeeded(v.Reason), fault.FrameText(v.Reason, v.Message)})
	})
}

// asFrame gives an error the text of a frame as its message: with the prefix of its reason.
func asFrame(err error) error {
	if err == nil {
		return nil
	}
	e := *fault.From(err)
	e.Message = fault.FrameText(e.Reason, e.Message)
	return &e
}
