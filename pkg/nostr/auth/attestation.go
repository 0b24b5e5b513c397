package auth

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// AttestationTag is the name of the tag by which an owner attests that a key is its agent's (NIP-OA).
const AttestationTag = "auth"

// maxConditions is the length of the longest conditions, in bytes. NIP-OA knows no bound; what is longer attests nothing.
const maxConditions = 1024

// What an attestation can lack. Who is shown none, or more than one, has been told of no owner either: ErrNoAttestation.
var (
	ErrNoAttestation = errors.New("there must be exactly one auth tag")
	ErrAttestation   = errors.New("the auth tag must have four elements: auth, the owner's key, the conditions, the owner's signature")
	ErrConditions    = errors.New("the conditions of the auth tag are malformed")
	ErrSelfAttested  = errors.New("nobody attests for itself")
	ErrOwner         = errors.New("the signature of the auth tag is not the owner's, for this key and these conditions")
)

// Attestation is an owner's signed word that a key is its agent's (NIP-OA). It says nothing about who wrote an event, and
// gives the agent nothing by itself: what an owner's agents may do is the relay's to say.
type Attestation struct {
	// Owner is the key that attests, and Agent the one that it attests for; they differ.
	Owner, Agent nostr.PubKey
	// after and before are the bounds of created_at, both exclusive.
	after, before int64
}

// Attested returns what an event's auth tag attests of its author. It looks at the tag alone: the caller has verified
// the event. The error is one of those above.
func Attested(ev *nostr.Event) (Attestation, error) {
	if ev.Tags.Count(AttestationTag) != 1 {
		return Attestation{}, ErrNoAttestation
	}
	for t := range ev.Tags.All(AttestationTag) {
		return ParseAttestation(t, ev.PubKey)
	}
	return Attestation{}, ErrNoAttestation
}

// DecodeAttestation is ParseAttestation of a tag in the form of a JSON array, which HTTP requests carry in the header
// X-Auth-Tag.
func DecodeAttestation(text string, agent nostr.PubKey) (Attestation, error) {
	var tag nostr.Tag
	if len(text) > maxHTTPHeader || json.Unmarshal([]byte(text), &tag) != nil {
		return Attestation{}, ErrAttestation
	}
	return ParseAttestation(tag, agent)
}

// ParseAttestation reads a tag that is shown by an agent, and verifies it: its form, its conditions and the owner's
// signature over agent and conditions, byte by byte. The error is one of those above.
func ParseAttestation(tag nostr.Tag, agent nostr.PubKey) (Attestation, error) {
	if len(tag) != 4 || tag[0] != AttestationTag {
		return Attestation{}, ErrAttestation
	}
	owner, err := nostr.ParsePubKey(tag[1])
	if err != nil {
		return Attestation{}, ErrAttestation
	}
	sig, err := nostr.ParseSig(tag[3])
	if err != nil {
		return Attestation{}, ErrAttestation
	}
	if owner == agent {
		return Attestation{}, ErrSelfAttested
	}
	a := Attestation{Owner: owner, Agent: agent, after: math.MinInt64, before: math.MaxInt64}
	if _, ok := a.parseConditions(tag[2]); !ok {
		return Attestation{}, ErrConditions
	}
	digest := attestationDigest(agent, tag[2])
	if !nostr.VerifySignature(&owner, &digest, &sig) {
		return Attestation{}, ErrOwner
	}
	return a, nil
}

// Attest returns the tag by which an owner attests that a key is its agent's. The error is ErrConditions, saying
// which part of them is wrong, or ErrSelfAttested.
func Attest(owner *nostr.SecretKey, agent nostr.PubKey, conditions string) (nostr.Tag, error) {
	if owner.PubKey() == agent {
		return nil, ErrSelfAttested
	}
	if len(conditions) > maxConditions {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrConditions, maxConditions)
	}
	if bad, ok := new(Attestation).parseConditions(conditions); !ok {
		return nil, fmt.Errorf("%w: %q is none of kind=NUMBER, created_at<UNIXTIME and created_at>UNIXTIME", ErrConditions, bad)
	}
	digest := attestationDigest(agent, conditions)
	sig, err := owner.SignDigest(&digest)
	if err != nil {
		return nil, err
	}
	return nostr.Tag{AttestationTag, owner.PubKey().String(), conditions, sig.String()}, nil
}

// attestationDigest is what an owner signs. The conditions stand in it as they are in the tag.
func attestationDigest(agent nostr.PubKey, conditions string) [32]byte {
	return sha256.Sum256([]byte("nostr:agent-auth:" + agent.String() + ":" + conditions))
}

// parseConditions reads clauses that are joined by &. All of them hold together, so of several bounds the narrowest
// counts. Which kinds of events the agent may sign is read, and is none of a proof's concern: a proof is of another kind
// than what the agent will send. It returns the first clause that is malformed, if one is.
func (a *Attestation) parseConditions(text string) (bad string, ok bool) {
	if len(text) > maxConditions {
		return text, false
	}
	if text == "" {
		return "", true
	}
	for clause := range strings.SplitSeq(text, "&") {
		at := strings.IndexAny(clause, "=<>")
		if at < 0 {
			return clause, false
		}
		value := clause[at+1:]
		switch clause[:at+1] {
		case "kind=":
			if _, ok := canonical(value, math.MaxUint16); !ok {
				return clause, false
			}
		case "created_at<":
			n, ok := canonical(value, math.MaxUint32)
			if !ok {
				return clause, false
			}
			a.before = min(a.before, n)
		case "created_at>":
			n, ok := canonical(value, math.MaxUint32)
			if !ok {
				return clause, false
			}
			a.after = max(a.after, n)
		default:
			return clause, false
		}
	}
	return "", true
}

// canonical reads a decimal number from 0 to most without leading zeros.
func canonical(s string, most uint64) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n > most || strconv.FormatUint(n, 10) != s {
		return 0, false
	}
	return int64(n), true
}

// Covers reports whether the attestation holds for an event with this created_at, in Unix seconds. NIP-OA leaves it
// to the verifier to make sure that an event is not dated back: proofs are fresh (CheckAuthEvent, CheckHTTPAuth).
func (a Attestation) Covers(createdAt int64) bool { return a.after < createdAt && createdAt < a.before }

// Until returns from when on the attestation does not hold any more, the zero Time if it does for ever.
func (a Attestation) Until() time.Time {
	if a.before == math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(a.before, 0)
}
