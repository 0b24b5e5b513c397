package nip19_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nip19"
)

const (
	keyHex  = "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e"
	npub    = "npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg"
	profile = "nprofile1qqsrhuxx8l9ex335q7he0f09aej04zpazpl0ne2cgukyawd24mayt8gpp4mhxue69uhhytnc9e3k7mgpz4mhxue69uhkg6nzv9ejuumpv34kytnrdaksjlyr9p"
)

// TestVectors are the examples of NIP-19.
func TestVectors(t *testing.T) {
	t.Parallel()
	key, err := nostr.ParsePubKey(keyHex)
	require.NoError(t, err)
	ref, err := nip19.Decode(npub)
	require.NoError(t, err)
	require.Equal(t, nip19.Ref{Type: nip19.PubKey, PubKey: key}, ref)
	text, err := ref.Encode()
	require.NoError(t, err)
	require.Equal(t, npub, text)

	key, err = nostr.ParsePubKey("3bf0c63fcb93463407af97a5e5ee64fa883d107ef9e558472c4eb9aaaefa459d")
	require.NoError(t, err)
	ref, err = nip19.Decode(profile)
	require.NoError(t, err)
	require.Equal(t, nip19.Ref{Type: nip19.Profile, PubKey: key, Relays: []string{"wss://r.x.com", "wss://djbas.sadkb.com"}}, ref)
	text, err = ref.Encode()
	require.NoError(t, err)
	require.Equal(t, profile, text)
}

func TestEveryTypeIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	key, err := nostr.ParsePubKey(keyHex)
	require.NoError(t, err)
	id, relays := nostr.ID(key), []string{"wss://team.example", ""}
	for _, ref := range []nip19.Ref{
		{Type: nip19.PubKey, PubKey: key},
		{Type: nip19.Note, ID: id},
		{Type: nip19.Profile, PubKey: key},
		{Type: nip19.Event, ID: id},
		{Type: nip19.Event, ID: id, Relays: relays, PubKey: key, HasAuthor: true, Kind: 65535, HasKind: true},
		{Type: nip19.Address, PubKey: key, HasAuthor: true, Kind: 0, HasKind: true},
		{Type: nip19.Address, PubKey: key, HasAuthor: true, Kind: 30023, HasKind: true, Relays: relays, Identifier: strings.Repeat("é", 127)},
	} {
		text, err := ref.Encode()
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(text, string(ref.Type)+"1"))
		got, err := nip19.Decode(text)
		require.NoError(t, err, text)
		require.Equal(t, ref, got)
		got, err = nip19.Decode(strings.ToUpper(text))
		require.NoError(t, err, "a QR code is in upper case")
		require.Equal(t, ref, got)
	}
}

func TestParsePubKey(t *testing.T) {
	t.Parallel()
	for _, text := range []string{keyHex, strings.ToUpper(keyHex), npub, strings.ToUpper(npub)} {
		key, err := nip19.ParsePubKey(text)
		require.NoError(t, err, text)
		require.Equal(t, keyHex, key.String())
	}
	_, err := nip19.ParsePubKey(profile)
	require.NoError(t, err)
	note, err := nip19.Ref{Type: nip19.Note}.Encode()
	require.NoError(t, err)
	for _, text := range []string{"", keyHex[1:], npub[1:], note, "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5"} {
		_, err := nip19.ParsePubKey(text)
		require.ErrorIs(t, err, nip19.ErrPubKey, text)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":            "",
		"another checksum":   npub[:len(npub)-1] + "q",
		"mixed case":         "N" + npub[1:],
		"no prefix":          npub[4:],
		"no data":            "npub1",
		"a secret key":       "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5",
		"a word of bech32m":  "a1lqfn3a",
		"an empty bech32":    "a12uel5l",
		"a Kelvin sign":      strings.Replace(npub, "k", "\u212a", 1),
		"one in upper case":  strings.Replace(strings.ToUpper(npub), "K", "\u212a", 1),
		"a character of 1":   strings.Replace(npub, "q", "b", 1),
		"more than is taken": npub + strings.Repeat("q", 5000),
	} {
		_, err := nip19.Decode(text)
		require.ErrorIs(t, err, nip19.ErrText, name)
	}
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	for _, ref := range []nip19.Ref{
		{},
		{Type: "nsec"},
		{Type: nip19.Address, Identifier: strings.Repeat("x", 256)},
		{Type: nip19.Event, Relays: []string{strings.Repeat("x", 256)}},
		{Type: nip19.Event, Relays: strings.Split(strings.Repeat(strings.Repeat("x", 254)+",", 16), ",")},
	} {
		_, err := ref.Encode()
		require.ErrorIs(t, err, nip19.ErrRef)
	}
}

// FuzzDecode: what is taken has one reading, which can be written and read again.
func FuzzDecode(f *testing.F) {
	f.Add(npub)
	f.Add(strings.ToUpper(npub))
	f.Add(profile)
	for _, ref := range []nip19.Ref{
		{Type: nip19.Note},
		{Type: nip19.Event, HasAuthor: true, HasKind: true, Kind: 1, Relays: []string{"x"}},
		{Type: nip19.Address, HasAuthor: true, HasKind: true, Identifier: "d"},
	} {
		text, err := ref.Encode()
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := nip19.Decode(text)
		key, keyErr := nip19.ParsePubKey(text)
		if err != nil {
			require.ErrorIs(t, err, nip19.ErrText)
			require.Equal(t, nip19.Ref{}, ref)
			return
		}
		require.LessOrEqual(t, len(text), 5000)
		named := ref.Type == nip19.PubKey || ref.Type == nip19.Profile
		require.Equal(t, named, keyErr == nil)
		if named {
			require.Equal(t, ref.PubKey, key)
		}
		again, err := ref.Encode()
		require.NoError(t, err)
		second, err := nip19.Decode(again)
		require.NoError(t, err, again)
		require.Equal(t, ref, second)
		if ref.Type == nip19.PubKey || ref.Type == nip19.Note {
			require.Equal(t, strings.ToLower(text), again, "a key has one spelling")
		}
	})
}

// FuzzRef: whatever entries a name has, reading it after its checksum gives what a plain reading of the
// entries says. Of random text hardly any has a checksum, so here the fuzzer chooses what is under it.
func FuzzRef(f *testing.F) {
	f.Add("naddr", []byte("\x00\x01d\x02\x20"+strings.Repeat("k", 32)+"\x03\x04\x00\x00\x75\x47"))
	f.Add("nevent", []byte("\x00\x20"+strings.Repeat("i", 32)+"\x01\x03wss\xff\x00"))
	f.Add("npub", []byte(strings.Repeat("k", 32)))
	f.Add("nsec", []byte(strings.Repeat("k", 32)))
	f.Fuzz(func(t *testing.T, prefix string, data []byte) {
		text := nip19.EncodeBech32(prefix, data)
		gotPrefix, gotData, ok := nip19.DecodeBech32(text)
		if ok {
			require.Equal(t, prefix, gotPrefix)
			require.Equal(t, string(data), string(gotData))
		} else {
			require.False(t, isPrefix(prefix), "%q", prefix)
		}
		ref, err := nip19.Decode(text)
		if err != nil {
			return
		}
		require.True(t, ok)
		require.Equal(t, prefix, string(ref.Type))
		again, err := ref.Encode()
		require.NoError(t, err)
		second, err := nip19.Decode(again)
		require.NoError(t, err)
		require.Equal(t, ref, second)
		require.LessOrEqual(t, len(again), len(text), "what is not known is left out, nothing is added")
		require.LessOrEqual(t, len(ref.Identifier), 255)
		for _, relay := range ref.Relays {
			require.Contains(t, string(data), relay)
		}
	})
}

// isPrefix reports whether BIP-173 takes prefix, in lower case.
func isPrefix(prefix string) bool {
	for _, c := range []byte(prefix) {
		if c < 33 || c > 126 || c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return prefix != ""
}
