package policy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"

	"github.com/apiary-relay/apiary/pkg/fault"
)

// JoinPolicy is what whoever joins a community with an invite has to accept first; nil asks for nothing. It never changes.
type JoinPolicy struct {
	// Terms are the terms of use, Privacy is the privacy policy, both in Markdown; either may be empty.
	Terms, Privacy string
	// Age is set when whoever joins has to say that they are old enough.
	Age bool

	version string
	key     []byte
}

// MaxJoinText is how long the terms, and the privacy policy, may be in bytes.
const MaxJoinText = 256 << 10

// NewJoinPolicy returns a policy whose receipts nobody makes without the secret. All replicas have the same.
func NewJoinPolicy(terms, privacy string, age bool, secret []byte) *JoinPolicy {
	said, _ := json.Marshal([]any{terms, privacy, age}) // of which one cannot be read as another
	version := sha256.Sum256(said)
	derive := hmac.New(sha256.New, secret)
	derive.Write([]byte("apiary join policy"))
	return &JoinPolicy{Terms: terms, Privacy: privacy, Age: age, version: hex.EncodeToString(version[:16]), key: derive.Sum(nil)}
}

// Version names what the policy says, in hexadecimal. Another policy has another one.
func (p *JoinPolicy) Version() string { return p.version }

// What is wrong with an acceptance, as clients read it.
const (
	// OtherVersion: it is of another policy, which may have been this one before.
	OtherVersion = "policy_version"
	// AgeUnconfirmed: the age has to be confirmed as well.
	AgeUnconfirmed = "age"
)

// Accept returns the receipt for who claims a code in a community, or what is wrong with the acceptance: OtherVersion or, of this
// version, AgeUnconfirmed.
func (p *JoinPolicy) Accept(community int64, code, version string, ageConfirmed bool) (receipt, wrong string) {
	switch {
	case version != p.version:
		return "", OtherVersion
	case p.Age && !ageConfirmed:
		return "", AgeUnconfirmed
	}
	return p.receipt(community, code), ""
}

// Holds reports whether a receipt is of this policy, for this code in this community.
func (p *JoinPolicy) Holds(community int64, code, receipt string) bool {
	return hmac.Equal([]byte(p.receipt(community, code)), []byte(receipt))
}

func (p *JoinPolicy) receipt(community int64, code string) string {
	mac := hmac.New(sha256.New, p.key)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(community)))
	mac.Write([]byte(p.version)) // of a fixed length, like what is before it
	mac.Write([]byte(code))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// JoinPolicyRequired answers who shows a good code without having accepted the policy.
var JoinPolicyRequired = Verdict{fault.Restricted, "join_policy_required"}
