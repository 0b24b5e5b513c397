package policy

import (
	"strconv"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
)

// CheckKind refuses the kinds that nobody may submit, whoever signed them. It comes before the signature is
// looked at.
func CheckKind(k nostr.Kind) Verdict {
	switch kind.Of(k).Sender {
	case kind.Proof:
		if k == nostr.KindAuth {
			return invalid("AUTH events cannot be submitted")
		}
		return invalid("authorization events cannot be submitted")
	case kind.Relay:
		if k == nostr.KindMemberAdded || k == nostr.KindMemberRemoved {
			return invalid("membership notifications are relay-signed only")
		}
		return Verdict{fault.Restricted, "relay-only kind"}
	case kind.Reserved:
		return UnknownKind
	default:
		return Verdict{}
	}
}

// UnknownKind answers an event of a kind that nobody may send, or that the community does not take because the
// registry does not know it.
var UnknownKind = Verdict{fault.Restricted, "unknown event kind"}

// checkCommand refuses kinds that ask the relay to do something that it does not do. To store them with
// OK true would tell the client that it was done.
func checkCommand(k nostr.Kind) Verdict {
	if kind.Of(k).Sender != kind.Command || isCarriedOut(k) {
		return Verdict{}
	}
	return unsupported("kind " + strconv.Itoa(int(k)) + " is not supported")
}
