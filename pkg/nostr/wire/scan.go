package wire

import "math"

// scanner walks over JSON once. Its methods return false after they have set msg and left i at the
// fault; nothing is to be called on it after that.
type scanner struct {
	b     []byte
	i     int
	depth int // open arrays and objects
	max   int // limit of depth, at most MaxDepth
	msg   string
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
