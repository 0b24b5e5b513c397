package nostr

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"sync"
)

// AppendCanonical appends the form that is hashed into the id (NIP-01):
// [0,"<pubkey>",<created_at>,<kind>,<tags>,"<content>"] in UTF-8 without whitespace. Of the characters
// in strings, only ", \ and those below 0x20 are escaped: \b \t \n \f \r \" \\ as NIP-01 lists them, and
// the control characters that it does not mention as \u00xx, which is what JSON.stringify gives and
// what all the clients in use compute. Everything else, 0x7f, U+2028, <, > and & included, is verbatim.
func (e *Event) AppendCanonical(dst []byte) []byte {
	dst = append(dst, `[0,"`...)
	dst = hex.AppendEncode(dst, e.PubKey[:])
	dst = append(dst, `",`...)
	dst = strconv.AppendInt(dst, e.CreatedAt, 10)
	dst = append(dst, ',')
	dst = strconv.AppendUint(dst, uint64(e.Kind), 10)
	dst = append(dst, ',')
	dst = appendTags(dst, e.Tags)
	dst = append(dst, ',')
	dst = AppendString(dst, e.Content)
	return append(dst, ']')
}

// AppendJSON appends the event as a JSON object in the field order of NIP-01, with the escapes of
// AppendCanonical.
func (e *Event) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"id":"`...)
	dst = hex.AppendEncode(dst, e.ID[:])
	dst = append(dst, `","pubkey":"`...)
	dst = hex.AppendEncode(dst, e.PubKey[:])
	dst = append(dst, `","created_at":`...)
	dst = strconv.AppendInt(dst, e.CreatedAt, 10)
	dst = append(dst, `,"kind":`...)
	dst = strconv.AppendUint(dst, uint64(e.Kind), 10)
	dst = append(dst, `,"tags":`...)
	dst = appendTags(dst, e.Tags)
	dst = append(dst, `,"content":`...)
	dst = AppendString(dst, e.Content)
	dst = append(dst, `,"sig":"`...)
	dst = hex.AppendEncode(dst, e.Sig[:])
	return append(dst, `"}`...)
}

// maxPooledBuffer keeps one huge event from pinning its buffer for ever.
const maxPooledBuffer = 64 << 10

var canonicalBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4096); return &b }}

// ComputeID returns the SHA-256 of the canonical form.
func (e *Event) ComputeID() ID {
	buf := canonicalBuffers.Get().(*[]byte)
	*buf = e.AppendCanonical((*buf)[:0])
	id := sha256.Sum256(*buf)
	if cap(*buf) <= maxPooledBuffer {
		canonicalBuffers.Put(buf)
	}
	return id
}

func appendTags(dst []byte, tags Tags) []byte {
	dst = append(dst, '[')
	for i, t := range tags {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		for j, v := range t {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = AppendString(dst, v)
		}
		dst = append(dst, ']')
	}
	return append(dst, ']')
}

// escapes holds for each byte 0 if it stands for itself, the letter of its short escape, or 'u'.
var escapes = func() (t [256]byte) {
	for i := range 0x20 {
		t[i] = 'u'
	}
	t['\b'], t['\t'], t['\n'], t['\f'], t['\r'] = 'b', 't', 'n', 'f', 'r'
	t['"'], t['\\'] = '"', '\\'
	return t
}()

// AppendString appends s as a JSON string with the escapes of AppendCanonical.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := range len(s) {
		esc := escapes[s[i]]
		if esc == 0 {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		if esc == 'u' {
			const digits = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', digits[s[i]>>4], digits[s[i]&0x0f])
			continue
		}
		dst = append(dst, '\\', esc)
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
