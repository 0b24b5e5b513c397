package nostr

import (
	"encoding/binary"
	"math/bits"

	"github.com/btcsuite/btcd/btcec/v2"
)

// sum collects terms kᵢ·Pᵢ of a sum of points and adds them up in far less work than one by one
// (Pippenger's bucket method, on scalars of half length). It works on public data and is not constant
// in time: no secret may go in.
type sum struct {
	points  []btcec.JacobianPoint // affine: Z is 1, coordinates are normalised
	scalars [][2]uint64           // of 128 bits, least limb first
}

// newSum returns an empty sum with room for n terms of addFull and n of addHalf.
func newSum(n int) *sum {
	return &sum{points: make([]btcec.JacobianPoint, 0, 3*n), scalars: make([][2]uint64, 0, 3*n)}
}

// addHalf adds k·p for a k of 128 bits.
func (s *sum) addHalf(k [2]uint64, p *btcec.JacobianPoint) {
	s.points = append(s.points, *p)
	s.scalars = append(s.scalars, k)
}

// addFull adds k·p for any k, as two terms of half length: k = k₁ + k₂·λ, where λ·(x, y) = (β·x, y).
func (s *sum) addFull(k *btcec.ModNScalar, p *btcec.JacobianPoint) {
	k1, k2 := split(k)
	q := *p
	q.X.Mul(beta).Normalize()
	s.addSigned(&k1, p)
	s.addSigned(&k2, &q)
}

// addSigned adds k·p, where k or −k has 128 bits.
func (s *sum) addSigned(k *btcec.ModNScalar, p *btcec.JacobianPoint) {
	q := *p
	if k.IsOverHalfOrder() {
		k.Negate()
		q.Y.Negate(1).Normalize()
	}
	l := limbs(k)
	s.addHalf([2]uint64(l[:2]), &q)
}

// total adds all terms up.
//
// The scalars are cut into windows of c bits with digits from −2ᶜ⁻¹ to 2ᶜ⁻¹. For one window, the points
// with the same digit up to its sign are added into a bucket, and Σ d·bucket(d) is had from the highest
// bucket down with two additions each. The windows are put together by c doublings each.
func (s *sum) total() (acc btcec.JacobianPoint) {
	c := windowBits(len(s.points))
	windows := windowCount(c)
	digits := make([]int16, windows*len(s.points))
	for i := range s.scalars {
		recode(digits[i*windows:(i+1)*windows], s.scalars[i], c)
	}
	buckets := make([]btcec.JacobianPoint, 1<<(c-1))
	var negated btcec.JacobianPoint
	for w := windows - 1; w >= 0; w-- {
		for range c {
			btcec.DoubleNonConst(&acc, &acc)
		}
		clear(buckets) // all zeros is the point at infinity
		for i := range s.points {
			switch d := digits[i*windows+w]; {
			case d > 0:
				btcec.AddNonConst(&buckets[d-1], &s.points[i], &buckets[d-1])
			case d < 0:
				negated = s.points[i]
				negated.Y.Negate(1).Normalize()
				btcec.AddNonConst(&buckets[-d-1], &negated, &buckets[-d-1])
			}
		}
		var running, window btcec.JacobianPoint
		for d := len(buckets) - 1; d >= 0; d-- {
			btcec.AddNonConst(&running, &buckets[d], &running)
			btcec.AddNonConst(&window, &running, &window)
		}
		btcec.AddNonConst(&acc, &window, &acc)
	}
	return acc
}

// windowCount is how many windows of c bits hold 128 bits and the carry of the signed digits.
func windowCount(c int) int { return 128/c + 1 }

// windowBits returns the c with the fewest additions for n terms.
func windowBits(n int) int {
	best, least := 0, 0
	for c := 2; c <= 12; c++ {
		if cost := windowCount(c) * (n + 1<<c); best == 0 || cost < least {
			best, least = c, cost
		}
	}
	return best
}

// recode writes k in digits of c bits from −2ᶜ⁻¹ to 2ᶜ⁻¹, the least first. The last window has room for
// the carry, since there are fewer than c bits left for it.
func recode(digits []int16, k [2]uint64, c int) {
	carry := uint64(0)
	for i := range digits {
		d := window(k, i*c, c) + carry
		carry = 0
		if d > 1<<(c-1) {
			digits[i] = int16(d) - 1<<c
			carry = 1
			continue
		}
		digits[i] = int16(d)
	}
}

// window returns c bits of k from bit at on.
func window(k [2]uint64, at, c int) uint64 {
	var w uint64
	switch {
	case at >= 128:
		return 0
	case at >= 64:
		w = k[1] >> (at - 64)
	case at == 0:
		w = k[0]
	default:
		w = k[0]>>at | k[1]<<(64-at)
	}
	return w & (1<<c - 1)
}

// The endomorphism of secp256k1 and the short basis of its lattice, as in "Faster Point Multiplication
// on Elliptic Curves with Efficient Endomorphisms" (Gallant, Lambert, Vanstone). g1 and g2 are
// 2³⁸⁴·b₂/n and −2³⁸⁴·b₁/n, rounded.
var (
	beta      = fieldOf("7ae96a2b657c07106e64479eac3434e99cf0497512f58995c1396c28719501ee")
	negLambda = negated(scalarOf("5363ad4cc05c30e0a5261c028812645a122e22ea20816678df02967c1b23bd72"))
	negB1     = scalarOf("00000000000000000000000000000000e4437ed6010e88286f547fa90abfe4c3")
	negB2     = scalarOf("fffffffffffffffffffffffffffffffe8a280ac50774346dd765cda83db1562c")
	g1        = limbs(scalarOf("3086d221a7d46bcde86c90e49284eb153daa8a1471e8ca7fe893209a45dbb031"))
	g2        = limbs(scalarOf("e4437ed6010e88286f547fa90abfe4c4221208ac9df506c61571b4ae8ac47f71"))
)

// split returns k1 and k2 with k = k1 + k2·λ mod n, each at most 128 bits up to its sign.
func split(k *btcec.ModNScalar) (k1, k2 btcec.ModNScalar) {
	l := limbs(k)
	c1, c2 := mulShift(&l, &g1), mulShift(&l, &g2)
	k2.Add2(c1.Mul(negB1), c2.Mul(negB2))
	k1.Mul2(&k2, negLambda).Add(k)
	return k1, k2
}

// mulShift returns a·b / 2³⁸⁴, rounded.
func mulShift(a, b *[4]uint64) *btcec.ModNScalar {
	var t [8]uint64
	for i := range a {
		var carry, c uint64
		for j := range b {
			hi, lo := bits.Mul64(a[i], b[j])
			lo, c = bits.Add64(lo, t[i+j], 0)
			hi += c
			lo, c = bits.Add64(lo, carry, 0)
			t[i+j], carry = lo, hi+c
		}
		t[i+4] = carry
	}
	var out [32]byte
	lo, c := bits.Add64(t[6], t[5]>>63, 0)
	binary.BigEndian.PutUint64(out[24:], lo)
	binary.BigEndian.PutUint64(out[16:], t[7]+c)
	var s btcec.ModNScalar
	s.SetBytes(&out)
	return &s
}

// limbs returns k in limbs of 64 bits, the least first.
func limbs(k *btcec.ModNScalar) [4]uint64 {
	b := k.Bytes()
	return [4]uint64{
		binary.BigEndian.Uint64(b[24:]), binary.BigEndian.Uint64(b[16:]),
		binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[:]),
	}
}

// fieldOf and scalarOf take constants of this file; a typing error fails every test.
func fieldOf(s string) *btcec.FieldVal {
	var b [32]byte
	var f btcec.FieldVal
	_ = ParseHex(b[:], s)
	f.SetBytes(&b)
	return &f
}

func scalarOf(s string) *btcec.ModNScalar {
	var b [32]byte
	var k btcec.ModNScalar
	_ = ParseHex(b[:], s)
	k.SetBytes(&b)
	return &k
}

func negated(k *btcec.ModNScalar) *btcec.ModNScalar { return k.Negate() }
