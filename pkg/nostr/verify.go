package nostr

import (
	"crypto/sha256"
	"errors"

	"github.com/btcsuite/btcd/btcec/v2"
)

var (
	// ErrBadID is returned when an event's id is not the hash of its canonical form.
	ErrBadID = errors.New("event id does not match its content")
	// ErrBadSignature is returned when the signature is not the author's for this id, which includes
	// an author that is no point of the curve.
	ErrBadSignature = errors.New("event signature is not valid")
)

// CheckID returns ErrBadID unless ID is the hash of the canonical form.
func (e *Event) CheckID() error {
	if e.ComputeID() != e.ID {
		return ErrBadID
	}
	return nil
}

// CheckSignature returns ErrBadSignature unless Sig signs ID. It does not look at what ID stands for:
// use Verify for an event from outside.
func (e *Event) CheckSignature() error {
	if !VerifySignature(&e.PubKey, (*[32]byte)(&e.ID), &e.Sig) {
		return ErrBadSignature
	}
	return nil
}

// Verify checks the id, then the signature. The error is ErrBadID or ErrBadSignature. It allocates
// nothing in the steady state, never blocks and takes some 150 µs of CPU, so it belongs into a bounded
// pool; VerifyEach does many events for less.
func (e *Event) Verify() error {
	if err := e.CheckID(); err != nil {
		return err
	}
	return e.CheckSignature()
}

// VerifySignature reports whether sig is a BIP-340 signature by pub over msg. BIP-340 signs messages of
// any length; everything that Nostr signs is a hash of 32 bytes.
func VerifySignature(pub *PubKey, msg *[32]byte, sig *Sig) bool {
	return verify(pub, msg[:], sig)
}

// verify is BIP-340's verification, for a message of any length, so that all its vectors apply. The
// equation is computed here on btcec's curve arithmetic, because the library's own entry point takes
// 32 bytes only, allocates on every call and does not refuse s ≥ n, as BIP-340 demands.
func verify(pub *PubKey, msg []byte, sig *Sig) bool {
	var p, sG, eP, r btcec.JacobianPoint
	if !liftX(pub, &p) {
		return false
	}
	var rx btcec.FieldVal
	if rx.SetByteSlice(sig[:32]) {
		return false // r ≥ p
	}
	var s btcec.ModNScalar
	if s.SetByteSlice(sig[32:]) {
		return false // s ≥ n
	}
	e := challenge(sig, pub, msg)

	// R = s·G − e·P must be finite, with an even y and x = r.
	e.Negate()
	btcec.ScalarBaseMultNonConst(&s, &sG)
	btcec.ScalarMultNonConst(&e, &p, &eP)
	btcec.AddNonConst(&sG, &eP, &r)
	if (r.X.IsZero() && r.Y.IsZero()) || r.Z.IsZero() {
		return false
	}
	r.ToAffine()
	return !r.Y.IsOdd() && rx.Equals(&r.X)
}

// liftX sets p to the point with this x and an even y; false if x is no x of the curve.
func liftX(x *PubKey, p *btcec.JacobianPoint) bool {
	if p.X.SetByteSlice(x[:]) {
		return false // x ≥ p
	}
	if !btcec.DecompressY(&p.X, false, &p.Y) {
		return false
	}
	p.Y.Normalize()
	p.Z.SetInt(1)
	return true
}

// challengeTag is SHA-256("BIP0340/challenge") twice, the prefix of the tagged hash.
var challengeTag = func() (t [64]byte) {
	h := sha256.Sum256([]byte("BIP0340/challenge"))
	copy(t[:32], h[:])
	copy(t[32:], h[:])
	return t
}()

// challenge returns e = int(taggedHash(r ‖ pub ‖ msg)) mod n. For 32 bytes the buffer stays on the
// stack.
func challenge(sig *Sig, pub *PubKey, msg []byte) btcec.ModNScalar {
	in := make([]byte, 0, 160)
	in = append(in, challengeTag[:]...)
	in = append(in, sig[:32]...)
	in = append(in, pub[:]...)
	in = append(in, msg...)
	h := sha256.Sum256(in)
	var e btcec.ModNScalar
	e.SetBytes(&h)
	return e
}
