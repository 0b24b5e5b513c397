// Package conn is one client socket: the read loop, the bounded writer, the heartbeat and the close
// codes. It knows frames and bounds; it knows nothing of Nostr, RPC or subscriptions.
//
// Goroutines. Serve runs on the caller's goroutine and is the only reader; it calls the Handler's
// Message and TooBig. A flushing goroutine exists only while there is something to write or a close
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
