package wire

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// scanner walks over JSON once. Its methods return false after they have set msg and left i at the
// fault; nothing is to be called on it after that.
type scanner struct {
	b     []byte
	i     int
	depth int // open arrays and objects
	max   int // limit of depth, at most MaxDepth
	msg   string
}

// text is a scanned string: b[start:end] between its quotes, size bytes once unescaped.
type text struct {
	start, end, size int
	escaped          bool
}

func (s *scanner) fail(msg string) bool {
	s.msg = msg
	return false
}

func (s *scanner) failAt(at int, msg string) bool {
	s.i = at
	return s.fail(msg)
}

// peek returns the next byte after whitespace, 0 at the end; a NUL byte is no JSON either.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// unexpected fails because of the byte at i.
func (s *scanner) unexpected() bool {
	if s.i >= len(s.b) {
		return s.fail("unexpected end of JSON")
	}
	return s.fail("malformed JSON")
}

// expect takes the byte c after whitespace.
func (s *scanner) expect(c byte) bool {
	if s.peek() != c {
		return s.unexpected()
	}
	s.i++
	return true
}

// end fails unless only whitespace is left.
func (s *scanner) end() bool {
	s.peek()
	if s.i < len(s.b) {
		return s.fail("unexpected data after the end of JSON")
	}
	return true
}

func (s *scanner) enter() bool {
	if s.depth >= s.max {
		return s.fail("JSON is nested too deeply")
	}
	s.depth++
	s.i++
	return true
}

func (s *scanner) leave() {
	s.depth--
	s.i++
}

// object takes an object, calling member with each key; member must take the value.
func (s *scanner) object(member func(key text) bool) bool {
	if s.peek() != '{' {
		return s.unexpected()
	}
	if !s.enter() {
		return false
	}
	if s.peek() == '}' {
		s.leave()
		return true
	}
	for {
		key, ok := s.key()
		if !ok || !member(key) {
			return false
		}
		switch s.peek() {
		case ',':
			s.i++
		case '}':
			s.leave()
			return true
		default:
			return s.unexpected()
		}
	}
}

// array takes an array, calling element with the index of each element; element must take it.
func (s *scanner) array(element func(i int) bool) bool {
	if s.peek() != '[' {
		return s.unexpected()
	}
	if !s.enter() {
		return false
	}
	if s.peek() == ']' {
		s.leave()
		return true
	}
	for i := 0; ; i++ {
		if !element(i) {
			return false
		}
		switch s.peek() {
		case ',':
			s.i++
		case ']':
			s.leave()
			return true
		default:
			return s.unexpected()
		}
	}
}

// key takes an object's key and the colon after it.
func (s *scanner) key() (text, bool) {
	if s.peek() != '"' {
		return text{}, s.unexpected()
	}
	t, ok := s.str()
	return t, ok && s.expect(':')
}

// skip takes any value. It keeps its own stack of one bit per level, so that no input can exhaust the
// goroutine's.
func (s *scanner) skip() bool {
	var objects [MaxDepth / 64]uint64
	isObject := func() bool { return objects[(s.depth-1)/64]>>((s.depth-1)%64)&1 == 1 }
	base := s.depth
	for {
		switch c := s.peek(); c {
		case '{', '[':
			if !s.enter() {
				return false
			}
			level, bit := (s.depth-1)/64, uint64(1)<<((s.depth-1)%64)
			if c == '[' {
				objects[level] &^= bit
				if s.peek() != ']' {
					continue
				}
			} else {
				objects[level] |= bit
				if s.peek() != '}' {
					if _, ok := s.key(); !ok {
						return false
					}
					continue
				}
			}
			s.leave()
		default:
			if !s.scalar(c) {
				return false
			}
		}
		// A value is complete: close what ends here, or go on to the next value.
		for {
			if s.depth == base {
				return true
			}
			closer := byte(']')
			if isObject() {
				closer = '}'
			}
			c := s.peek()
			if c == ',' {
				s.i++
				break
			}
			if c != closer {
				return s.unexpected()
			}
			s.leave()
		}
		if isObject() {
			if _, ok := s.key(); !ok {
				return false
			}
		}
	}
}

// scalar takes a string, number, true, false or null that begins with c.
func (s *scanner) scalar(c byte) bool {
	switch c {
	case '"':
		_, ok := s.str()
		return ok
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		_, ok := s.number()
		return ok
	}
}

func (s *scanner) literal(word string) bool {
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return s.unexpected()
	}
	s.i += len(word)
	return true
}

// boolean takes true or false.
func (s *scanner) boolean() (value, ok bool) {
	if s.peek() == 't' {
		return true, s.literal("true")
	}
	return false, s.literal("false")
}

// number takes a JSON number and reports whether it is written as an integer.
func (s *scanner) number() (integer, ok bool) {
	if s.i < len(s.b) && s.b[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if !s.digits() {
		return false, s.unexpected()
	}
	integer = true
	if s.i < len(s.b) && s.b[s.i] == '.' {
		integer = false
		s.i++
		if !s.digits() {
			return false, s.unexpected()
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		integer = false
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if !s.digits() {
			return false, s.unexpected()
		}
	}
	return integer, true
}

// digits takes one or more decimal digits.
func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		s.i++
	}
	return s.i > start
}

// int64 takes an integer between least and most; name is for the message.
func (s *scanner) int64(name string, least, most int64) (int64, bool) {
	s.peek()
	start := s.i
	if start < len(s.b) && s.b[start] != '-' && s.b[start]-'0' > 9 {
		return 0, s.fail(name + " must be an integer")
	}
	integer, ok := s.number()
	if !ok {
		return 0, false
	}
	if !integer {
		return 0, s.failAt(start, name+" must be an integer without fraction or exponent")
	}
	digits, negative := s.b[start:s.i], false
	if digits[0] == '-' {
		digits, negative = digits[1:], true
	}
	var abs uint64
	for _, c := range digits {
		d := uint64(c - '0')
		if abs > (math.MaxUint64-d)/10 {
			return 0, s.failAt(start, name+" is out of range")
		}
		abs = abs*10 + d
	}
	var n int64
	switch {
	case !negative && abs <= math.MaxInt64:
		n = int64(abs)
	case negative && abs <= 1<<63:
		n = -int64(abs)
	default:
		return 0, s.failAt(start, name+" is out of range")
	}
	if n < least || n > most {
		return 0, s.failAt(start, name+" is out of range")
	}
	return n, true
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
