package nip19

import "strings"

// charset is bech32's alphabet; the index of a character is its five bits.
const charset = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"

// checksum is how many characters the checksum takes.
const checksum = 6

// encodeBech32 returns data under a lower-case prefix.
func encodeBech32(prefix string, data []byte) string {
	five := regroup(data, 8, 5)
	if rest := len(data) * 8 % 5; rest > 0 {
		last := data[len(data)-1]
		five = append(five, last<<(5-rest)&31)
	}
	sum := polymod(prefix, append(five, make([]byte, checksum)...)) ^ 1
	for i := range checksum {
		five = append(five, byte(sum>>(5*(checksum-1-i)))&31)
	}
	var text strings.Builder
	text.WriteString(prefix)
	text.WriteByte('1')
	for _, v := range five {
		text.WriteByte(charset[v])
	}
	return text.String()
}

// decodeBech32 returns the prefix, in lower case, and the data of a bech32 text, which is all lower or all upper
// case. There is exactly one text of either case for a prefix and data.
func decodeBech32(text string) (prefix string, data []byte, ok bool) {
	for _, c := range []byte(text) {
		if c < 33 || c > 126 { // a Kelvin sign, too, is a k in lower case
			return "", nil, false
		}
	}
	lower := strings.ToLower(text)
	if text != lower && text != strings.ToUpper(text) {
		return "", nil, false
	}
	end := strings.LastIndexByte(lower, '1')
	if end < 1 || len(lower)-end-1 < checksum {
		return "", nil, false
	}
	prefix = lower[:end]
	five := make([]byte, 0, len(lower)-end-1)
	for _, c := range []byte(lower[end+1:]) {
		v := strings.IndexByte(charset, c)
		if v < 0 {
			return "", nil, false
		}
		five = append(five, byte(v))
	}
	if polymod(prefix, five) != 1 {
		return "", nil, false
	}
	five = five[:len(five)-checksum]
	// What is left over after the last byte is padding: less than a character, and zero.
	rest := len(five) * 5 % 8
	if rest >= 5 || rest > 0 && five[len(five)-1]&(1<<rest-1) != 0 {
		return "", nil, false
	}
	return prefix, regroup(five, 5, 8), true
}

// regroup takes a sequence of groups of from bits for one of to bits, without what is left over at the end.
func regroup(groups []byte, from, to int) []byte {
	out := make([]byte, 0, len(groups)*from/to+1+checksum)
	acc, bits := 0, 0
	for _, g := range groups {
		acc = acc<<from | int(g)
		bits += from
		for bits >= to {
			bits -= to
			out = append(out, byte(acc>>bits&(1<<to-1)))
		}
		acc &= 1<<bits - 1
	}
	return out
}

// polymod is BIP-173's checksum over the prefix and the five-bit groups.
func polymod(prefix string, groups []byte) uint32 {
	generator := [5]uint32{0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3}
	sum := uint32(1)
	add := func(v byte) {
		top := sum >> 25
		sum = sum&0x1ffffff<<5 ^ uint32(v)
		for i, g := range generator {
			if top>>i&1 == 1 {
				sum ^= g
			}
		}
	}
	for _, c := range []byte(prefix) {
		add(c >> 5)
	}
	add(0)
	for _, c := range []byte(prefix) {
		add(c & 31)
	}
	for _, g := range groups {
		add(g)
	}
	return sum
}
