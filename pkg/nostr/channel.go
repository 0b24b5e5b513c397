package nostr

// MaxChannelID is how long a channel id may be in bytes.
const MaxChannelID = 64

// ValidChannelID reports whether h can be the id of a channel: 1 to MaxChannelID of A–Z, a–z, 0–9, - and _.
// NIP-29 wants groups of a-z0-9-_; others exist and do no harm.
func ValidChannelID(h string) bool {
	if h == "" || len(h) > MaxChannelID {
		return false
	}
	for i := range len(h) {
		b := h[i]
		if (b|0x20 < 'a' || b|0x20 > 'z') && (b < '0' || b > '9') && b != '-' && b != '_' {
			return false
		}
	}
	return true
}
