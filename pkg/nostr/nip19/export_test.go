package nip19

// The bech32 under the names, for tests of it.
var (
	EncodeBech32 = encodeBech32
	DecodeBech32 = decodeBech32
)
