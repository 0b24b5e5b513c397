package hll

import (
	"crypto/sha256"
	"encoding/hex"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

func filter(values ...string) *nostr.Filter {
	return &nostr.Filter{Tags: []nostr.TagCondition{{Name: 'e', Values: values}}}
}

func TestOffset(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("0", 32) + "a" + strings.Repeat("0", 31)
	hashed := sha256.Sum256([]byte("bees"))
	digit := new(big.Int)
	digit.SetString(hex.EncodeToString(hashed[:])[32:33], 16)
	for value, want := range map[string]int{
		id:                                18,
		"30023:" + id + ":d":              18,
		"30023:" + id + ":":               18,
		"bees":                            8 + int(digit.Int64()),
		strings.Repeat("f", 64):           23,
		"0:" + strings.Repeat("0", 64):    offsetOfHash("0:" + strings.Repeat("0", 64)),
		"x:" + id + ":d":                  offsetOfHash("x:" + id + ":d"),
		strings.ToUpper(id):               offsetOfHash(strings.ToUpper(id)),
		"":                                offsetOfHash(""),
		"30023:not a key:" + id + ":tail": offsetOfHash("30023:not a key:" + id + ":tail"),
	} {
		got, ok := Offset([]*nostr.Filter{filter(value)})
		require.True(t, ok)
		require.Equal(t, want, got, value)
	}
	for name, filters := range map[string][]*nostr.Filter{
		"none":           {},
		"two filters":    {filter("a"), filter("a")},
		"no condition":   {{}},
		"two values":     {filter("a", "b")},
		"no value":       {filter()},
		"two conditions": {{Tags: []nostr.TagCondition{{Name: 'e', Values: []string{"a"}}, {Name: 'p', Values: []string{"a"}}}}},
	} {
		_, ok := Offset(filters)
		require.False(t, ok, name)
	}
}

func offsetOfHash(value string) int {
	sum := sha256.Sum256([]byte(value))
	return 8 + int(sum[16]>>4)
}

// naive is the text of NIP-45 over a string of bits.
func naive(authors []nostr.PubKey, offset int) Registers {
	var r Registers
	for _, a := range authors {
		var text strings.Builder
		for _, b := range a {
			for i := 7; i >= 0; i-- {
				text.WriteByte('0' + b>>i&1)
			}
		}
		tail := text.String()[8*(offset+1):]
		rank := len(tail) - len(strings.TrimLeft(tail, "0")) + 1
		if byte(rank) > r[a[offset]] {
			r[a[offset]] = byte(rank)
		}
	}
	return r
}

// The registers are those of the text, and two sketches merge into that of both sets.
func TestRegisters(t *testing.T) {
	t.Parallel()
	keys := rapid.SliceOf(rapid.Custom(func(t *rapid.T) (k nostr.PubKey) {
		copy(k[:], rapid.SliceOfN(rapid.OneOf(rapid.Just(byte(0)), rapid.Byte()), 32, 32).Draw(t, "key"))
		return k
	}))
	rapid.Check(t, func(t *rapid.T) {
		a, b, offset := keys.Draw(t, "a"), keys.Draw(t, "b"), rapid.IntRange(8, 23).Draw(t, "offset")
		sketch := func(authors []nostr.PubKey) (r Registers) {
			for _, k := range authors {
				r.Add(k, offset)
			}
			return r
		}
		require.Equal(t, naive(a, offset), sketch(a))
		merged, other := sketch(a), sketch(b)
		for i := range merged {
			merged[i] = max(merged[i], other[i])
		}
		require.Equal(t, sketch(append(a, b...)), merged)
	})
}
