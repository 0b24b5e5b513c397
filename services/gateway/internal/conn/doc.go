// Package conn is one client socket from its handshake on: the bounded writer, the heartbeat, the close codes, and the waiting
// for what the client sends. Handshake, frames (RFC 6455) and closing handshake are the WebSocket library's; event frames and
// answers go to the connection under it. The package knows frames and bounds; it knows nothing of Nostr, RPC or subscriptions.
//
// Goroutines. One goroutine at a time reads: it works, on the stack and with the buffers that this needs, and calls the
// Handler's Message and TooBig. For a client that is silent a Poller waits, on one goroutine for all connections; where there
// is none, one that rests, on the smallest stack there is and without a buffer. Between messages it waits outside the library, which it enters only when there
// is something to read, and leaves when all frames that have come are read. A flushing goroutine exists only while there is
// something to write or a close to carry out, for which it sends the reading one away; it calls the Handler's Room. Timers
// (heartbeat, strikes, the last resort of a close) run on goroutines of the runtime and only take the queue's lock.
// Everything else may be called from any goroutine and never blocks, except HistoryRoom.
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
