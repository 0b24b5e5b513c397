package nostr

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/btcsuite/btcd/btcec/v2"
)

// minBatch is the number of signatures from which on a batch takes less time than one by one, as
// BenchmarkVerifyBatch shows.
const minBatch = 8

// VerifyBatch reports whether all events verify. It says nothing about which does not. See VerifyEach.
func VerifyBatch(events []*Event) bool {
	for _, e := range events {
		if e.CheckID() != nil {
			return false
		}
	}
	if len(events) < minBatch {
		for _, e := range events {
			if e.CheckSignature() != nil {
				return false
			}
		}
		return true
	}
	return verifyTogether(events)
}

// VerifyEach verifies every event and returns nil if all are good, otherwise one error per event
// (ErrBadID, ErrBadSignature), nil for the good ones: a bad event never fails a neighbour. From minBatch
// events on it takes less CPU than Verify of each, the less the more events there are and the fewer
// authors they have: half for 64 events of 64 authors, a third for 64 of 16. Events with a bad id cost
// next to nothing.
//
// A batch that fails is verified one by one, which bounds what one bad signature costs to three
// quarters more than without batches. Halving it until the bad one is found would cost about the same
// when there is one, and a multiple when somebody sends many.
//
// It runs on the calling goroutine and neither blocks nor keeps the slice or the events.
func VerifyEach(events []*Event) []error {
	var errs []error
	refuse := func(i int, err error) {
		if errs == nil {
			errs = make([]error, len(events))
		}
		errs[i] = err
	}
	together := make([]*Event, 0, len(events))
	for i, e := range events {
		if err := e.CheckID(); err != nil {
			refuse(i, err)
			continue
		}
		together = append(together, e)
	}
	if len(together) >= minBatch && verifyTogether(together) {
		return errs
	}
	for i, e := range events {
		if errs != nil && errs[i] != nil {
			continue
		}
		if err := e.CheckSignature(); err != nil {
			refuse(i, err)
		}
	}
	return errs
}

// verifyTogether checks the signatures of all events at once, as BIP-340 describes it: every signature
// satisfies s·G = R + e·P, so for any coefficients a
//
//	(Σ aᵢ·sᵢ)·G = Σ aᵢ·Rᵢ + Σ (aᵢ·eᵢ)·Pᵢ
//
// and if one does not, the sums differ for all but one in 2¹²⁸ of the coefficients of 128 bits. They
// come from the system's random source: whoever can guess them can make two wrong signatures cancel
// out. The terms of one author are put together before they are multiplied.
func verifyTogether(events []*Event) bool {
	var (
		terms   = newSum(len(events))
		s       btcec.ModNScalar
		authors = make(map[PubKey]*btcec.ModNScalar, len(events))
		random  = make([]byte, 16*len(events))
	)
	_, _ = rand.Read(random) // never fails: it would crash the program
	for i, e := range events {
		// Rᵢ is the point with x = r and an even y.
		var r btcec.JacobianPoint
		if !liftX((*PubKey)(e.Sig[:32]), &r) {
			return false
		}
		var term, a btcec.ModNScalar
		if term.SetByteSlice(e.Sig[32:]) {
			return false // s ≥ n
		}
		half := [2]uint64{binary.BigEndian.Uint64(random[16*i+8:]), binary.BigEndian.Uint64(random[16*i:])}
		a.SetByteSlice(random[16*i : 16*i+16])
		terms.addHalf(half, &r)
		s.Add(term.Mul(&a))

		term = challenge(&e.Sig, &e.PubKey, e.ID[:])
		term.Mul(&a)
		if k, ok := authors[e.PubKey]; ok {
			k.Add(&term)
		} else {
			authors[e.PubKey] = &term
		}
	}
	for pub, k := range authors {
		var p btcec.JacobianPoint
		if !liftX(&pub, &p) {
			return false
		}
		terms.addFull(k, &p)
	}
	var difference btcec.JacobianPoint
	s.Negate()
	btcec.ScalarBaseMultNonConst(&s, &difference)
	total := terms.total()
	btcec.AddNonConst(&difference, &total, &difference)
	return (difference.X.IsZero() && difference.Y.IsZero()) || difference.Z.IsZero()
}
