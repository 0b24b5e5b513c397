// Package bus owns how the services talk over NATS: the connection, publishing with an acknowledgement,
// ordered consumption that never skips silently, durable consumption with acknowledgement after the
// effect, key-value buckets of what is worth nothing after a while, and the definitions of the streams.
//
// Rules. A publish fails at once while the server is away (the outbox keeps the row; nothing is buffered
// that nobody has promised to keep). A consumer is told of everything it cannot be given: a hole in the
// stream, or a stream that was made anew. Subjects come from bus/subject, payloads are messages of
// apiary.bus.v1; trace context travels in the headers.
//
// A Bus is safe for concurrent use. Every blocking method runs in the caller's goroutine and calls its
// handler there, one message at a time.
package bus
