package nostr

import (
	"encoding/csv"
	"encoding/hex"
	"os"
	"testing"

	"github.com/btcsuite/btcd/btcec/v2/schnorr"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// vector is one line of testdata/bip340-vectors.csv.
type vector struct {
	secret, aux, msg []byte
	pub              PubKey
	sig              Sig
	valid            bool
	name             string
}

func vectors(t *testing.T) []vector {
	t.Helper()
	f, err := os.Open("testdata/bip340-vectors.csv")
	require.NoError(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 1+19)
	var vs []vector
	for _, r := range rows[1:] {
		v := vector{
			secret: unhexed(t, r[1]), aux: unhexed(t, r[3]), msg: unhexed(t, r[4]),
			valid: r[6] == "TRUE", name: r[0] + " " + r[7],
		}
		copy(v.pub[:], unhexed(t, r[2]))
		copy(v.sig[:], unhexed(t, r[5]))
		vs = append(vs, v)
	}
	return vs
}

func unhexed(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

func TestVerifyBIP340Vectors(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, v.valid, verify(&v.pub, v.msg, &v.sig))
			if len(v.msg) == 32 {
				require.Equal(t, v.valid, VerifySignature(&v.pub, (*[32]byte)(v.msg), &v.sig))
			}
		})
	}
}

func TestSignBIP340Vectors(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		if len(v.secret) == 0 || len(v.msg) != 32 {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			k, err := ParseSecretKey(hex.EncodeToString(v.secret))
			require.NoError(t, err)
			require.Equal(t, v.pub, k.PubKey())
			sig, err := sign(k, (*[32]byte)(v.msg), [32]byte(v.aux))
			require.NoError(t, err)
			require.Equal(t, v.sig, sig)
		})
	}
}

// TestVerifyRefusesLargeS: s + n is the same scalar, so accepting it would make signatures malleable
// where it fits 256 bits.
func TestVerifyRefusesLargeS(t *testing.T) {
	t.Parallel()
	v := vectors(t)[0]
	for i := range v.sig[32:] {
		v.sig[32+i] = 0xff
	}
	require.False(t, verify(&v.pub, v.msg, &v.sig))
}

// TestVerifyAgreesWithLibrary flips one bit at most and compares with btcec's own verification.
func TestVerifyAgreesWithLibrary(t *testing.T) {
	t.Parallel()
	k, err := ParseSecretKey("0b432b2677937381aef05bb02a66ecd012773062cf3fa2549e44f58ed2401710")
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		msg := [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "msg"))
		aux := [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "aux"))
		pub := k.PubKey()
		sig, err := sign(k, &msg, aux)
		require.NoError(t, err)
		all := make([]byte, 0, 128)
		all = append(append(append(all, msg[:]...), pub[:]...), sig[:]...)
		if flip := rapid.IntRange(-200, 8*128-1).Draw(t, "flip"); flip >= 0 {
			all[flip/8] ^= 1 << (flip % 8)
		}
		msg, pub, sig = [32]byte(all[:32]), PubKey(all[32:64]), Sig(all[64:])
		require.Equal(t, libraryVerifies(pub, msg, sig), VerifySignature(&pub, &msg, &sig))
	})
}

func libraryVerifies(pub PubKey, msg [32]byte, sig Sig) bool {
	p, err := schnorr.ParsePubKey(pub[:])
	if err != nil {
		return false
	}
	s, err := schnorr.ParseSignature(sig[:])
	return err == nil && s.Verify(msg[:], p)
}

func TestVerifyDoesNotAllocate(t *testing.T) {
	v := vectors(t)[0]
	require.Zero(t, testing.AllocsPerRun(10, func() {
		_ = verify(&v.pub, v.msg, &v.sig)
	}))
}
