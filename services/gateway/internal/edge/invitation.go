package edge

import (
	"fmt"
	"net/http"
	"strings"
)

// maxCode is how long a code in a link may be in bytes.
const maxCode = 128

// isCode reports whether text can be an invite code: letters, digits, dots, dashes and underscores, so that nothing
// else gets from a link to a page.
func isCode(text string) bool {
	return text != "" && len(text) <= maxCode && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '.' && r != '-' && r != '_'
	})
}

// invitation serves the link of an invite to who follows it in a browser: what to do with the code. It does not say
// whether the code is good; that is known to who claims it. Nor does it ask whether there is a policy to accept: the page says how
// that is found out.
func (h *Handler) invitation(w http.ResponseWriter, r *http.Request, c *Community, code string) {
	if !getOnly(w, r) {
		return
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	relay := h.webSocket(r, c)
	text(w, http.StatusOK, fmt.Sprintf(`You are invited to the Nostr relay at %[1]s

Invite code: %[2]s

Open the relay in a Nostr client that knows NIP-43 and give it the code, or have the client claim it with
POST /api/invites/claim. With Apiary's own:

    apiary client join --relay %[1]s %[2]s

The relay may have terms and a privacy policy that you accept first, and may ask you to confirm your age: /terms and
/privacy show what there is, and the command above says how it is accepted. Another client finds it at
GET /api/join-policy, accepts it with POST /api/invites/accept-policy, and shows the receipt with the code.
`, relay, code))
}
