// Package wire reads and writes the frames between clients and relays (NIP-01, NIP-42, NIP-45). It
// owns the syntax of a frame and the limits on it: what a decoder of this package returns is valid
// UTF-8, inside the limits, and means the same to every JSON reader. It must never judge content:
// ids, signatures, kinds and rights are others' business.
//
// Decoding is one pass over the bytes by a scanner of our own. Limits are checked before memory is
// taken, nothing recurses, and nothing panics on any input. Encoding appends to a slice of the caller.
// There is no state and no goroutine; everything is safe for concurrent use.
//
// # JSON, strictly
//
// RFC 8259, with everything refused on which readers differ:
//
//   - The bytes must be valid UTF-8. A \u escape of a surrogate without its partner is refused, because
//     no UTF-8 text can carry it and JavaScript would compute another id than we. All other escapes
//     are taken, \/ and \u0000 included; control characters must be escaped.
//   - A key twice in an event or a filter is refused, because readers differ in which one counts. Inside
//     the value of an unknown key of an event it is not looked at.
//   - Integers are an optional minus and decimal digits without a leading zero. A fraction or an
//     exponent is refused even when the value is whole (1.0, 1e10), because the id is computed from
//     digits and others would write them differently. -0 is 0, as in JSON.stringify. created_at, since
//     and until take the whole int64 range, also beyond 2^53 where JavaScript loses digits; from 2^63 on
//     they are refused. Kinds are 0 to 65535. A limit above 2^31-1 means 2^31-1.
//   - Nothing but whitespace may follow the frame or the event.
//   - Keys may be empty strings. Nesting is limited.
//
// An event has its seven fields, each once and of its type. Keys that NIP-01 does not know are checked
// for syntax and otherwise ignored; DecodeEventExtra says whether there were any. A filter with a key
// that we do not know is refused as unsupported, because ignoring it would return too much.
package wire
