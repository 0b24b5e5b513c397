package edge

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// maxNames is how many names search is asked about at a time. Anybody may ask.
const maxNames = 8

// names answers who has a name at this host (NIP-05), nobody included, which is an answer like the others.
type names struct {
	Names  map[string]string   `json:"names"`
	Relays map[string][]string `json:"relays"`
}

// name serves /.well-known/nostr.json.
func (h *Handler) name(w http.ResponseWriter, r *http.Request, c *Community) {
	cors(w.Header())
	if !getOnly(w, r) {
		return
	}
	asked := r.URL.Query().Get("name")
	key, err := h.directory.name(r.Context(), c, strings.ToLower(asked))
	if err != nil {
		h.log.LogAttrs(r.Context(), slog.LevelWarn, "name not resolved", slog.Any(telemetry.KeyError, err))
		unavailable(w)
		return
	}
	answer := names{Names: map[string]string{}, Relays: map[string][]string{}}
	if key != "" {
		answer.Names[asked] = key
		answer.Relays[key] = []string{h.webSocket(r, c)}
	}
	body, err := json.Marshal(answer)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "internal error") // strings always marshal
		return
	}
	head := w.Header()
	head.Set("Content-Type", "application/json")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Cache-Control", "no-cache") // whoever is no member any more has no name
	head.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error means that the client has left
}

// webSocket is the URL of the relay under the host that was asked: with TLS unless the request came without, here or, as a
// proxy says, there.
func (h *Handler) webSocket(r *http.Request, c *Community) string {
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		return "wss://" + c.Host
	}
	return "ws://" + c.Host
}

// name returns the key, in hexadecimal, that has a name (in lower case) at the host by which the community was found;
// empty if there is none.
func (d *Directory) name(ctx context.Context, c *Community, name string) (string, error) {
	if !isName(name) {
		return "", nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.cfg.CallTimeout, fault.New(fault.Overloaded, ""))
	defer cancel()
	if err := d.names.Acquire(ctx, 1); err != nil {
		return "", context.Cause(ctx)
	}
	defer d.names.Release(1)
	resp, err := d.resolver.ResolveName(ctx, &searchv1.ResolveNameRequest{Community: c.ID, Name: name, Host: c.Host})
	switch {
	case fault.ReasonOf(err) == fault.NotFound:
		return "", nil
	case err != nil:
		return "", err
	case len(resp.GetPubkey()) != len(nostr.PubKey{}):
		return "", fault.New(fault.InternalFault, "")
	default:
		return nostr.PubKey(resp.GetPubkey()).String(), nil
	}
}

// isName reports whether text is the part of an identifier before the @, by NIP-05, in lower case.
func isName(text string) bool {
	return text != "" && len(text) <= 64 && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
}
