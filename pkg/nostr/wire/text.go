package wire

import (
	"encoding/binary"
	"unicode/utf8"
)

// text is a scanned string: b[start:end] between its quotes, size bytes once unescaped.
type text struct {
	start, end, size int
	escaped          bool
}

// str takes the string whose opening quote is at i and checks its escapes and its UTF-8.
func (s *scanner) str() (text, bool) {
	s.i++
	t := text{start: s.i}
	saved := 0 // by how much unescaping shortens the string
	for {
		s.i = plain(s.b, s.i)
		if s.i >= len(s.b) {
			return t, s.fail("unterminated string")
		}
		switch c := s.b[s.i]; {
		case c == '"':
			t.end = s.i
			t.size = t.end - t.start - saved
			s.i++
			return t, true
		case c == '\\':
			n, size := escape(s.b[s.i:])
			if n == 0 {
				return t, s.fail("malformed escape in a string, or a surrogate without its partner")
			}
			t.escaped = true
			saved += n - size
			s.i += n
		case c < 0x20:
			return t, s.fail("unescaped control character in a string")
		default:
			r, n := utf8.DecodeRune(s.b[s.i:])
			if r == utf8.RuneError && n == 1 {
				return t, s.fail("text is not valid UTF-8")
			}
			s.i += n
		}
	}
}

// plain returns the first index from i on at which str has to look: at a quote, a backslash, a byte below
// 0x20 or one above 0x7f. It goes eight bytes at a time while there is none of these among them: a
// subtraction borrows into a byte's highest bit exactly when the byte is too small. A borrow may spill
// into the bytes above, so a hit says that there is one, not where.
func plain(b []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for len(b)-i >= 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote := w ^ ones*'"'
		slash := w ^ ones*'\\'
		if ((w-ones*0x20)|(quote-ones)|(slash-ones)|w)&highs != 0 {
			break
		}
		i += 8
	}
	for i < len(b) && b[i] >= 0x20 && b[i] < utf8.RuneSelf && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// escape measures the escape at the start of b: n bytes that stand for size bytes of UTF-8; n is 0 if
// it is malformed or half a surrogate pair.
func escape(b []byte) (n, size int) {
	if len(b) < 2 {
		return 0, 0
	}
	if b[1] != 'u' {
		if short(b[1]) == 0 {
			return 0, 0
		}
		return 2, 1
	}
	r, n := unicodeEscape(b)
	if n == 0 {
		return 0, 0
	}
	return n, utf8.RuneLen(r)
}

// short returns the character that a two-character escape stands for, 0 if there is no such escape.
func short(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	default:
		return 0
	}
}

// unicodeEscape reads \uXXXX, or two of them that make a surrogate pair, and returns the code point and
// how many bytes it took; 0 bytes if it is malformed or half a pair.
func unicodeEscape(b []byte) (r rune, n int) {
	hi, ok := hex4(b)
	if !ok {
		return 0, 0
	}
	if hi < 0xd800 || hi > 0xdfff {
		return hi, 6
	}
	if hi > 0xdbff {
		return 0, 0
	}
	lo, ok := hex4(b[6:])
	if !ok || lo < 0xdc00 || lo > 0xdfff {
		return 0, 0
	}
	return 0x10000 + (hi-0xd800)<<10 + (lo - 0xdc00), 12
}

// hex4 reads \uXXXX; JSON takes hexadecimal digits of either case.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		r <<= 4
		switch {
		case c-'0' <= 9:
			r |= rune(c - '0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r |= rune(c|0x20-'a') + 10
		default:
			return 0, false
		}
	}
	return r, true
}

// bytes returns the unescaped string: a slice of the input, or new memory of exactly its size.
func (s *scanner) bytes(t text) []byte {
	if !t.escaped {
		return s.b[t.start:t.end]
	}
	return unescape(make([]byte, 0, t.size), s.b[t.start:t.end])
}

// unescape appends the unescaped form of b, which str has checked.
func unescape(dst, b []byte) []byte {
	for i := 0; i < len(b); {
		if b[i] != '\\' {
			start := i
			for i < len(b) && b[i] != '\\' {
				i++
			}
			dst = append(dst, b[start:i]...)
			continue
		}
		if b[i+1] != 'u' {
			dst = append(dst, short(b[i+1]))
			i += 2
			continue
		}
		r, n := unicodeEscape(b[i:])
		dst = utf8.AppendRune(dst, r)
		i += n
	}
	return dst
}
