package edge

import (
	"context"
	"errors"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apiary-relay/apiary/pkg/telemetry"
	"github.com/apiary-relay/apiary/pkg/tenant"
	"github.com/apiary-relay/apiary/services/gateway/internal/admit"
	"github.com/apiary-relay/apiary/services/gateway/internal/bridge"
	"github.com/apiary-relay/apiary/services/gateway/internal/conn"
	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
	"github.com/apiary-relay/apiary/services/gateway/internal/hub"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
	"github.com/apiary-relay/apiary/services/gateway/internal/told"
)

// Config is how the edge behaves.
type Config struct {
	// TrustForwardedHost takes the host from the last X-Forwarded-Host, which a proxy in front has set.
	TrustForwardedHost bool
	// TrustedProxies are networks whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	// Conn bounds each connection.
	Conn conn.Config
	// Gate bounds what each client does in a time.
	Gate *admit.Gate
	// Info is what NIP-11 says.
	Info Info
	// OperatorHosts are the authorities (normalised) at which operators are served, and nobody else.
	OperatorHosts []string
}

// Handler serves HTTP.
type Handler struct {
	cfg       Config
	root      context.Context // of all connections
	log       *slog.Logger
	m         *metrics.Metrics
	directory *Directory
	conns     *hub.Conns
	sessions  *session.Server
	bridge    *bridge.Bridge
	told      *told.Log
	running   sync.WaitGroup
}

// NewHandler returns a handler. root is the parent of every connection's context; its end closes no
// connection.
func NewHandler(
	root context.Context, cfg Config, log *slog.Logger, m *metrics.Metrics,
	directory *Directory, conns *hub.Conns, sessions *session.Server, calls *bridge.Bridge, heard *told.Log,
) *Handler {
	return &Handler{
		cfg: cfg, root: root, log: log, m: m, directory: directory, conns: conns, sessions: sessions, bridge: calls, told: heard,
	}
}

// Wait waits until every upgraded connection has ended.
func (h *Handler) Wait() { h.running.Wait() }

// connKey is the context key of a request's connection.
type connKey struct{}

// ConnContext is the http.Server's ConnContext: it lets the handler find the connection that carries a
// request, which the listener has made a *cork.Conn.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		ignoreBody(w)
	}
	host, err := h.host(r)
	if err == nil && h.isOperators(host) {
		if !h.bridge.Operate(w, r) {
			notFound(w)
		}
		return
	}
	var c *Community
	mark := h.told.Now()
	if err == nil {
		c, err = h.directory.Resolve(r.Context(), host)
	}
	switch {
	case errors.Is(err, ErrNoCommunity) && asksInfo(r):
		h.information(w, r, &Community{}) // what is said of this relay under any host
		return
	case errors.Is(err, ErrNoCommunity), errors.Is(err, tenant.ErrHost):
		h.m.Upgrade(r.Context(), metrics.OutcomeUnknownHost)
		notFound(w)
		return
	case err != nil:
		h.log.LogAttrs(r.Context(), slog.LevelWarn, "community not resolved", slog.Any(telemetry.KeyError, err))
		h.m.Upgrade(r.Context(), metrics.OutcomeUnavailable)
		unavailable(w)
		return
	case c.Refuses(clientAddr(r, h.cfg.TrustedProxies)):
		h.m.Upgrade(r.Context(), metrics.OutcomeBlocked)
		refuse(w, http.StatusForbidden, "forbidden")
		return
	}
	switch r.URL.Path {
	case "/":
		h.relay(w, r, c, mark)
	case "/.well-known/nostr.json":
		h.name(w, r, c)
	case "/info":
		h.information(w, r, c)
	case "/events":
		h.call(w, r, c, h.bridge.Submit)
	case "/query":
		h.call(w, r, c, h.bridge.Query)
	case "/count":
		h.call(w, r, c, h.bridge.Count)
	case "/moderation/reports":
		h.read(w, r, c, h.bridge.Reports)
	case "/moderation/audit":
		h.read(w, r, c, h.bridge.Audit)
	case "/moderation/restricted":
		h.read(w, r, c, h.bridge.Restricted)
	case "/api/invites":
		h.call(w, r, c, h.bridge.MintInvite)
	case "/api/invites/claim":
		h.call(w, r, c, h.bridge.ClaimInvite)
	case "/api/invites/accept-policy":
		h.call(w, r, c, h.bridge.AcceptPolicy)
	case "/api/join-policy":
		h.open(w, r, h.bridge.JoinPolicy)
	case "/terms":
		h.open(w, r, h.bridge.Terms)
	case "/privacy":
		h.open(w, r, h.bridge.Privacy)
	default:
		if code, ok := strings.CutPrefix(r.URL.Path, "/invite/"); ok && isCode(code) {
			h.invitation(w, r, c, code)
			return
		}
		notFound(w)
	}
}

// relay serves the relay's own URL: WebSocket, relay information (NIP-11) and management (NIP-86).
//
// mark is from before the community was looked up.
func (h *Handler) relay(w http.ResponseWriter, r *http.Request, c *Community, mark uint64) {
	cors(w.Header())
	switch {
	case r.Method == http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
	case bridge.IsManagement(r):
		h.bridge.Manage(w, r, c.Community)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		notAllowed(w, "GET, HEAD, POST, OPTIONS")
	case isUpgrade(r) && r.ContentLength != 0:
		refuse(w, http.StatusBadRequest, "a WebSocket handshake has no body")
	case isUpgrade(r):
		h.upgrade(w, r, c, mark)
	case wantsInfo(r):
		h.info(w, r, c)
	default:
		w.Header().Set("Vary", "Accept")
		text(w, http.StatusOK, "This is a Nostr relay. Connect with a Nostr client.\n")
	}
}

// information serves the relay information at a URL of its own, whatever the request accepts.
func (h *Handler) information(w http.ResponseWriter, r *http.Request, c *Community) {
	cors(w.Header())
	if getOnly(w, r) {
		h.info(w, r, c)
	}
}

// getOnly reports whether a request reads; others are answered.
func getOnly(w http.ResponseWriter, r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return true
	case http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
	default:
		notAllowed(w, "GET, HEAD, OPTIONS")
	}
	return false
}

// ignoreBody has the connection closed after the answer. The HTTP server would otherwise wait for the body
// first, as long as the client likes.
func ignoreBody(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	// An error means that the connection is gone.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now())
}

// call serves the URL of a call that is a POST.
func (h *Handler) call(
	w http.ResponseWriter, r *http.Request, c *Community, do func(http.ResponseWriter, *http.Request, session.Community),
) {
	signed(w, r, c, http.MethodPost, do)
}

// read serves the URL of a call that is a GET.
func (h *Handler) read(
	w http.ResponseWriter, r *http.Request, c *Community, do func(http.ResponseWriter, *http.Request, session.Community),
) {
	signed(w, r, c, http.MethodGet, do)
}

// open serves a URL that anybody may read.
func (h *Handler) open(w http.ResponseWriter, r *http.Request, do func(http.ResponseWriter, *http.Request)) {
	cors(w.Header())
	if getOnly(w, r) {
		do(w, r)
	}
}

// signed serves the URL of a call with a method.
func signed(
	w http.ResponseWriter, r *http.Request, c *Community, method string,
	do func(http.ResponseWriter, *http.Request, session.Community),
) {
	cors(w.Header())
	switch r.Method {
	case http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
	case method:
		do(w, r, c.Community)
	default:
		notAllowed(w, method+", OPTIONS")
	}
}

// isOperators reports whether a host is the operators' own: an exact authority, or the name without its port.
func (h *Handler) isOperators(host string) bool {
	return len(h.cfg.OperatorHosts) > 0 && slices.ContainsFunc(tenant.Candidates(host), func(name string) bool {
		return slices.Contains(h.cfg.OperatorHosts, name)
	})
}

// host returns the host that the request is for.
func (h *Handler) host(r *http.Request) (string, error) {
	host := r.Host
	if h.cfg.TrustForwardedHost {
		if all := r.Header.Values("X-Forwarded-Host"); len(all) > 0 {
			// The last one is the nearest proxy's; what stands before it may be the client's invention.
			last := all[len(all)-1]
			host = strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])
		}
	}
	return tenant.NormalizeHost(host)
}

// cors lets pages of any origin ask, and read what is answered (NIP-11). The wildcard does not cover
// Authorization. Nothing depends on cookies, so no origin is worth more than another.
func cors(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Headers", "*, Authorization")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS")
	h.Set("Access-Control-Expose-Headers", "ETag, Retry-After")
}

func isUpgrade(r *http.Request) bool {
	for _, v := range r.Header.Values("Upgrade") {
		if strings.EqualFold(strings.TrimSpace(v), "websocket") {
			return true
		}
	}
	return false
}

// mediaType is the media type of the NIP-11 document.
const mediaType = "application/nostr+json"

func wantsInfo(r *http.Request) bool {
	for _, accept := range r.Header.Values("Accept") {
		for one := range strings.SplitSeq(accept, ",") {
			if t, _, err := mime.ParseMediaType(one); err == nil && t == mediaType {
				return true
			}
		}
	}
	return false
}

// asksInfo reports whether a request is for the relay information and for nothing else.
func asksInfo(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !isUpgrade(r) &&
		(r.URL.Path == "/info" || r.URL.Path == "/" && wantsInfo(r))
}

func (h *Handler) info(w http.ResponseWriter, r *http.Request, c *Community) {
	doc, err := h.cfg.Info.render(c)
	if err != nil {
		h.log.LogAttrs(r.Context(), slog.LevelError, "relay information not rendered", slog.Any(telemetry.KeyError, err))
		refuse(w, http.StatusInternalServerError, "internal error")
		return
	}
	// no-cache lets it be kept and asks for it again each time, which costs a 304: a moderator's change of the
	// name is seen at once.
	tag := etag(doc)
	head := w.Header()
	head.Set("Cache-Control", "no-cache")
	head.Set("ETag", tag)
	head.Set("Vary", "Accept")
	if matchesTag(r.Header.Values("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	head.Set("Content-Type", mediaType)
	head.Set("Content-Length", strconv.Itoa(len(doc)))
	_, _ = w.Write(doc) //nolint:gosec // JSON under its own media type; an error means that the client has left
}

// upgrade turns the request into a connection with a session.
//
//nolint:contextcheck // the connection outlives its request, so its context is not the request's
func (h *Handler) upgrade(w http.ResponseWriter, r *http.Request, c *Community, mark uint64) {
	switch h.conns.Reserve() {
	case hub.Full:
		h.m.Upgrade(r.Context(), metrics.OutcomeFull)
		unavailable(w)
		return
	case hub.Draining:
		h.m.Upgrade(r.Context(), metrics.OutcomeDraining)
		w.Header().Set("Connection", "close")
		unavailable(w)
		return
	case hub.Admitted:
	}
	nc, ok := r.Context().Value(connKey{}).(*cork.Conn)
	if !ok {
		h.conns.Release()
		h.log.LogAttrs(r.Context(), slog.LevelError, "connection is not corked")
		refuse(w, http.StatusInternalServerError, "internal error")
		return
	}
	client := h.cfg.Gate.Client(clientAddr(r, h.cfg.TrustedProxies), time.Now())
	// The connection has goroutines of its own, so that the server's per-request state does not live as long as it.
	socket, err := conn.Accept(tenant.With(h.root, tenant.ID(c.ID)), &h.cfg.Conn, nc, h.m, w, r)
	if err != nil {
		h.conns.Release()
		h.m.Upgrade(r.Context(), metrics.OutcomeHandshake)
		return
	}
	h.m.Upgrade(r.Context(), metrics.OutcomeAccepted)
	nc.Meter(func(read int) time.Duration { return client.Read(read, time.Now()) })
	h.running.Add(1)
	h.serve(socket, client, c, mark)
}

// serve begins a session on a connection.
func (h *Handler) serve(socket *conn.Conn, client *admit.Client, c *Community, mark uint64) {
	h.m.Connected(socket.Context(), 1)
	join := func(m hub.Member) bool {
		open := h.conns.Join(m)
		if one, ok := m.(*session.Session); ok {
			one.DoubtSince(mark) // its host or its network may have been taken since it was looked up
		}
		return open
	}
	h.sessions.Start(socket, client, &c.Community, join, func(s *session.Session) {
		h.conns.Leave(s)
		h.m.Connected(socket.Context(), -1)
		h.m.Closed(socket.Context(), socket.Cause())
		h.conns.Release()
		h.running.Done()
	})
}
