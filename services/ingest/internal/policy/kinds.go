package policy

import (
	"strconv"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// CheckKind refuses the kinds that nobody may submit, whoever signed them. It comes before the signature is
// looked at.
func CheckKind(k nostr.Kind) Verdict {
	switch k {
	case nostr.KindAuth:
		return invalid("AUTH events cannot be submitted")
	case nostr.KindHTTPAuth, 24242:
		return invalid("authorization events cannot be submitted")
	case 44100, 44101:
		return invalid("membership notifications are relay-signed only")
	default:
		if relaySigned(k) {
			return Verdict{fault.Restricted, "relay-only kind"}
		}
		return Verdict{}
	}
}

// relaySigned reports whether only the relay's own key may sign events of the kind: rosters, channel
// state and overlays that clients would otherwise take for the relay's word.
func relaySigned(k nostr.Kind) bool {
	switch {
	case k >= 8000 && k <= 8003, // NIP-43 and identity-archive deltas
		k == 13534, k == 13535, // their snapshots
		k == 30622,               // hidden conversations
		k >= 39000 && k <= 39009, // NIP-29 channel state and overlays
		k == 40099,               // system messages
		k == 40901, k == 40902:   // channel summary, presence snapshot
		return true
	}
	return false
}

// checkCommand refuses kinds that ask the relay to do something that it does not do. To store them with
// OK true would tell the client that it was done.
func checkCommand(k nostr.Kind) Verdict {
	switch {
	case k == nostr.KindCreateGroup:
		return Verdict{}
	case k >= 9000 && k <= 9022, // NIP-29 moderation and join requests
		k >= 9030 && k <= 9036, // relay administration
		k >= 9040 && k <= 9044, // community moderation
		k == 28936,             // NIP-43 leave request
		k == 30350,             // push lease
		k == 30620, k == 46020, // workflow definition and trigger
		k == 46030, k == 46031, // workflow approvals
		k == 41010, k == 41011, k == 41012, // direct message commands
		k == 42000: // feedback to the operator
		return unsupported("kind " + strconv.Itoa(int(k)) + " is not supported")
	}
	return Verdict{}
}

// needsChannel reports whether events of the kind exist only in a channel.
func needsChannel(k nostr.Kind) bool {
	switch {
	case k == nostr.KindChat,
		k >= 40002 && k <= 40008,             // messages, edits, pins, reminders, diffs
		k == 40100,                           // shared document
		k >= 45001 && k <= 45003,             // forum
		k >= 48100 && k <= 48103, k == 48106: // huddles
		return true
	}
	return false
}
