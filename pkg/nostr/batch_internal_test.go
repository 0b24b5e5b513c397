package nostr

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/btcsuite/btcd/btcec/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// scalars draws scalars, the extreme ones more often than chance would.
func scalars() *rapid.Generator[btcec.ModNScalar] {
	return rapid.Custom(func(t *rapid.T) btcec.ModNScalar {
		var k btcec.ModNScalar
		if rapid.Bool().Draw(t, "small") {
			k.SetInt(rapid.Uint32Range(0, 3).Draw(t, "k"))
		} else {
			b := [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "k"))
			k.SetBytes(&b)
		}
		if rapid.Bool().Draw(t, "negative") {
			k.Negate()
		}
		if rapid.IntRange(0, 3).Draw(t, "lambda") == 0 {
			k.Mul(negLambda)
		}
		return k
	})
}

func TestSplit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := scalars().Draw(t, "k")
		k1, k2 := split(&k)
		sum := new(btcec.ModNScalar).Mul2(&k2, negLambda)
		sum.Negate().Add(&k1)
		require.True(t, sum.Equals(&k))
		for _, half := range []*btcec.ModNScalar{&k1, &k2} {
			if half.IsOverHalfOrder() {
				half.Negate()
			}
			l := limbs(half)
			require.Zero(t, l[2]|l[3])
		}
	})
}

// TestEndomorphism: λ·(x, y) = (β·x, y).
func TestEndomorphism(t *testing.T) {
	t.Parallel()
	var one btcec.ModNScalar
	one.SetInt(1)
	var g, byLambda btcec.JacobianPoint
	btcec.ScalarBaseMultNonConst(&one, &g)
	lambda := *negLambda
	btcec.ScalarMultNonConst(lambda.Negate(), &g, &byLambda)
	byLambda.ToAffine()
	g.X.Mul(beta).Normalize()
	require.True(t, g.X.Equals(&byLambda.X))
	require.True(t, g.Y.Equals(&byLambda.Y))
}

func TestRecode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limb := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, math.MaxUint64, 1 << 63}))
		k := [2]uint64{limb.Draw(t, "low"), limb.Draw(t, "high")}
		c := rapid.IntRange(2, 12).Draw(t, "c")
		digits := make([]int16, windowCount(c))
		recode(digits, k, c)

		var want, got, power, base btcec.ModNScalar
		var b [16]byte
		binary.BigEndian.PutUint64(b[:8], k[1])
		binary.BigEndian.PutUint64(b[8:], k[0])
		want.SetByteSlice(b[:])
		power.SetInt(1)
		base.SetInt(1 << c)
		for _, d := range digits {
			require.LessOrEqual(t, int(d), 1<<(c-1))
			require.GreaterOrEqual(t, int(d), -(1 << (c - 1)))
			var term btcec.ModNScalar
			if d < 0 {
				term.SetInt(uint32(-d)).Negate()
			} else {
				term.SetInt(uint32(d))
			}
			got.Add(term.Mul(&power))
			power.Mul(&base)
		}
		require.True(t, want.Equals(&got))
	})
}

// TestSum compares with one multiplication after the other. Points come from a few, and their
// negatives, so that doublings and cancellations happen inside the buckets.
func TestSum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 20).Draw(t, "n")
		s := newSum(n)
		var want btcec.JacobianPoint
		for range n {
			var p, product btcec.JacobianPoint
			var k btcec.ModNScalar
			k.SetInt(rapid.Uint32Range(1, 4).Draw(t, "point"))
			if rapid.Bool().Draw(t, "negative") {
				k.Negate()
			}
			btcec.ScalarBaseMultNonConst(&k, &p)
			p.ToAffine()
			if rapid.Bool().Draw(t, "half") {
				half := [2]uint64{rapid.Uint64().Draw(t, "low"), rapid.Uint64().Draw(t, "high")}
				s.addHalf(half, &p)
				var b [16]byte
				binary.BigEndian.PutUint64(b[:8], half[1])
				binary.BigEndian.PutUint64(b[8:], half[0])
				k.SetByteSlice(b[:])
			} else {
				k = scalars().Draw(t, "k")
				full := k
				s.addFull(&full, &p)
			}
			btcec.ScalarMultNonConst(&k, &p, &product)
			btcec.AddNonConst(&want, &product, &want)
		}
		got := s.total()
		want.ToAffine()
		got.ToAffine()
		require.True(t, want.X.Equals(&got.X))
		require.True(t, want.Y.Equals(&got.Y))
	})
}

// signed returns n distinct events by so many authors in turn.
func signed(tb testing.TB, n, authors int) []*Event {
	tb.Helper()
	keys := make([]*SecretKey, authors)
	for i := range keys {
		seed := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(i)))
		k, err := ParseSecretKey(ID(seed).String())
		require.NoError(tb, err)
		keys[i] = k
	}
	events := make([]*Event, n)
	for i := range events {
		events[i] = &Event{Kind: KindText, CreatedAt: int64(i), Content: "event"}
		require.NoError(tb, events[i].Sign(keys[i%authors]))
	}
	return events
}

// copies returns events that may be changed.
func copies(events []*Event) []*Event {
	out := make([]*Event, len(events))
	for i, e := range events {
		c := *e
		out[i] = &c
	}
	return out
}

// TestBatchAgreesWithSingle spoils some events in one way or another and compares with Verify of each.
func TestBatchAgreesWithSingle(t *testing.T) {
	t.Parallel()
	pool := signed(t, 40, 7)
	rapid.Check(t, func(t *rapid.T) {
		events := copies(rapid.SliceOfN(rapid.SampledFrom(pool), 0, 24).Draw(t, "events"))
		for range rapid.IntRange(-4, 3).Draw(t, "spoil") {
			if len(events) == 0 {
				break
			}
			spoil(t, rapid.SampledFrom(events).Draw(t, "which"))
		}
		want, bad := make([]error, len(events)), false
		for i, e := range events {
			want[i] = e.Verify()
			bad = bad || want[i] != nil
		}
		if !bad {
			want = nil
		}
		require.Equal(t, !bad, VerifyBatch(events))
		require.Equal(t, want, VerifyEach(events))
	})
}

func spoil(t *rapid.T, e *Event) {
	switch rapid.IntRange(0, 6).Draw(t, "how") {
	case 0:
		e.Content += "!"
	case 1:
		e.Sig[rapid.IntRange(0, 63).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
	case 2:
		e.PubKey[rapid.IntRange(0, 31).Draw(t, "byte")] ^= 1
		e.ID = e.ComputeID()
	case 3: // the negative of s: the point is −R, with an odd y
		var s btcec.ModNScalar
		s.SetByteSlice(e.Sig[32:])
		b := s.Negate().Bytes()
		copy(e.Sig[32:], b[:])
	case 4: // r ≥ p
		for i := range e.Sig[:32] {
			e.Sig[i] = 0xff
		}
	case 5: // s ≥ n
		for i := range e.Sig[32:] {
			e.Sig[32+i] = 0xff
		}
	case 6:
		e.Sig = Sig{}
	}
}

// TestWrongSignaturesDoNotCancel: with equal coefficients the errors of these two would.
func TestWrongSignaturesDoNotCancel(t *testing.T) {
	t.Parallel()
	events := copies(signed(t, 16, 16))
	require.True(t, VerifyBatch(events))
	for i, delta := range map[int]uint32{3: 5, 11: 5} {
		var s, d btcec.ModNScalar
		s.SetByteSlice(events[i].Sig[32:])
		d.SetInt(delta)
		if i == 11 {
			d.Negate()
		}
		b := s.Add(&d).Bytes()
		copy(events[i].Sig[32:], b[:])
	}
	require.False(t, VerifyBatch(events))
	errs := VerifyEach(events)
	for i, err := range errs {
		if i == 3 || i == 11 {
			require.ErrorIs(t, err, ErrBadSignature)
		} else {
			require.NoError(t, err)
		}
	}
}

// TestBatchOfVectors puts every vector of BIP-340 over 32 bytes among good signatures.
func TestBatchOfVectors(t *testing.T) {
	t.Parallel()
	good := signed(t, 12, 12)
	for _, v := range vectors(t) {
		if len(v.msg) != 32 {
			continue
		}
		events := append(copies(good), &Event{ID: ID(v.msg), PubKey: v.pub, Sig: v.sig})
		require.Equal(t, v.valid, verifyTogether(events), v.name)
	}
}

// BenchmarkVerifyBatch shows what an event costs in batches, next to what it costs alone.
func BenchmarkVerifyBatch(b *testing.B) {
	const most = 512
	for _, authors := range []int{most, 16} {
		pool := signed(b, most, authors)
		perEvent := func(name string, n int, verify func([]*Event) bool) {
			b.Run(fmt.Sprintf("authors=%d/%s", authors, name), func(b *testing.B) {
				events := 0
				for b.Loop() {
					if !verify(pool[:n]) {
						b.Fatal("does not verify")
					}
					events += n
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
			})
		}
		perEvent("alone", 16, func(events []*Event) bool {
			for _, e := range events {
				if e.Verify() != nil {
					return false
				}
			}
			return true
		})
		for _, n := range []int{4, 8, 16, 32, 64, 128, 256, 512} {
			perEvent(fmt.Sprintf("batch=%d", n), n, verifyTogether)
		}
	}
}
