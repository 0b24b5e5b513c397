// Package cork is the net.Conn under the WebSocket library: it lets the gateway write many complete server frames with one
// vectored system call while the library goes on writing its own control frames on the same connection, and wait for a
// client without holding a buffer for what it may say.
//
// It owns the order of bytes on the wire. A frame, whoever writes it, is written whole under one
// mutex, so frames never interleave; after a close frame or a broken write nothing is written any
// more. It knows WebSocket framing (RFC 6455 §5, server side: unmasked, unfragmented) and nothing
// of Nostr. It must never buffer, drop or reorder what it was asked to write.
//
// Any goroutine may call any method of Conn; Listener is used by the HTTP server alone.
package cork
