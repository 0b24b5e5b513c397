// Package conn is one client socket after its handshake: the parsing of what the client sends (RFC 6455), the bounded
// writer, the heartbeat and the close codes. It knows frames and bounds; it knows nothing of Nostr, RPC or subscriptions.
//
// Goroutines. One goroutine at a time reads: it works, on the stack and with the buffer that this needs, and calls the
// Handler's Message and TooBig; or it rests, for a client that is silent, on the smallest stack there is and without a
// buffer. Each starts the other in its place. A flushing goroutine exists only while there is something to write or a close
// to carry out; it calls the Handler's Room. Timers (heartbeat, strikes, the last resort of a close)
// run on goroutines of the runtime and only take the queue's lock. Everything else may be called
// from any goroutine and never blocks, except HistoryRoom.
//
// Order. All frames go through one FIFO, so an EOSE never overtakes the history before it and a
// CLOSED never overtakes the events before it. What differs is the budget: event frames are refused
// when theirs is used up, history waits, and control frames (OK, EOSE, CLOSED, AUTH, NOTICE, COUNT,
// ping, pong) have their own, whose exhaustion closes the socket. They are never dropped on a socket
// that stays open.
//
// Life of a connection:
//
//	open ──Close──▶ flushing ──queue empty──▶ closing ──peer answers, or time is up──▶ done
//	  │ ──Abort────────────(queue dropped)──────▲                                       ▲
//	  └───────────────peer leaves, write fails───────────────────────────────────────────┘
package conn
