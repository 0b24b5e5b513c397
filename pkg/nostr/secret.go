package nostr

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/btcsuite/btcd/btcec/v2"
	"github.com/btcsuite/btcd/btcec/v2/schnorr"
)

// ErrBadSecret is returned for text that is not a secret key. It never quotes the text.
var ErrBadSecret = errors.New("not a secret key: 64 lower-case hex digits, above zero and below the group order")

// SecretKey signs events. Every way of printing it prints "redacted"; only Hex reveals it. The zero
// value is not a key. Safe for concurrent use.
type SecretKey struct {
	key *btcec.PrivateKey
	pub PubKey
}

// GenerateSecretKey returns a new key from the system's random source.
func GenerateSecretKey() (*SecretKey, error) {
	key, err := btcec.NewPrivateKey()
	if err != nil {
		return nil, fmt.Errorf("generate secret key: %w", err)
	}
	return newSecretKey(key), nil
}

// ParseSecretKey parses 64 lower-case hexadecimal digits. The error is ErrBadSecret.
func ParseSecretKey(s string) (*SecretKey, error) {
	var raw [32]byte
	defer clear(raw[:])
	if ParseHex(raw[:], s) != nil {
		return nil, ErrBadSecret
	}
	var scalar btcec.ModNScalar
	if scalar.SetBytes(&raw) != 0 || scalar.IsZero() {
		return nil, ErrBadSecret
	}
	return newSecretKey(btcec.PrivKeyFromScalar(&scalar)), nil
}

func newSecretKey(key *btcec.PrivateKey) *SecretKey {
	k := &SecretKey{key: key}
	copy(k.pub[:], schnorr.SerializePubKey(key.PubKey()))
	return k
}

// PubKey returns the public key that verifies what the key signs.
func (k SecretKey) PubKey() PubKey { return k.pub }

// Hex returns the key itself as 64 lower-case hexadecimal digits.
func (k SecretKey) Hex() string { return hex.EncodeToString(k.key.Serialize()) }

// String returns "redacted".
func (k SecretKey) String() string { return redacted }

// Format prints "redacted" whatever the verb, so that no %x or %#v reaches the scalar.
func (k SecretKey) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, redacted) }

// LogValue returns "redacted".
func (k SecretKey) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns "redacted".
func (k SecretKey) MarshalText() ([]byte, error) { return []byte(redacted), nil }

const redacted = "redacted"

// Sign sets PubKey, ID and Sig. The signature is deterministic: BIP-340 with auxiliary data of zeros,
// and it is verified before it is returned, so that a fault of the machine cannot leak the key. An
// error means that the key is the zero value or that the arithmetic went wrong; the event is then not
// usable.
func (e *Event) Sign(secret *SecretKey) error {
	if secret == nil || secret.key == nil {
		return ErrBadSecret
	}
	e.PubKey = secret.pub
	e.ID = e.ComputeID()
	sig, err := sign(secret, (*[32]byte)(&e.ID), [32]byte{})
	if err != nil {
		return fmt.Errorf("sign event: %w", err)
	}
	e.Sig = sig
	return nil
}

// SignDigest returns the BIP-340 signature of a digest that is no event's id. It is deterministic, like Sign.
// The caller sees to it that the digest cannot be that of something else.
func (k *SecretKey) SignDigest(digest *[32]byte) (Sig, error) {
	if k == nil || k.key == nil {
		return Sig{}, ErrBadSecret
	}
	sig, err := sign(k, digest, [32]byte{})
	if err != nil {
		return Sig{}, fmt.Errorf("sign digest: %w", err)
	}
	return sig, nil
}

// sign makes the BIP-340 signature of msg with the auxiliary data aux.
func sign(secret *SecretKey, msg *[32]byte, aux [32]byte) (Sig, error) {
	s, err := schnorr.Sign(secret.key, msg[:], schnorr.CustomNonce(aux))
	if err != nil {
		return Sig{}, err
	}
	return Sig(s.Serialize()), nil
}
