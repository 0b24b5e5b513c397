package kind

// Form is what an event has to be like to be accepted, beyond what NIP-01 says. The zero Form asks for nothing.
type Form struct {
	// D says what its d tag must be.
	D Naming
	// OneP is set when it must have exactly one p tag, with a key.
	OneP bool
	// Sealed is set when its content must be encrypted (NIP-44, version 2), as far as one can tell without the key.
	Sealed bool
}

// Naming says what the d tag of an event must be.
type Naming uint8

// The namings. All but AnyName want exactly one d tag.
const (
	// AnyName is any number of d tags, of which the first counts.
	AnyName Naming = iota
	// OneName is one that is not empty.
	OneName
	// Slug is a short name that may stand in an address: a-z and 0-9, and after the first character also _ and -, at most 64.
	Slug
	// Hash is 64 lower-case hexadecimal digits.
	Hash
)
