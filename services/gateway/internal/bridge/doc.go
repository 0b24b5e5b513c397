// Package bridge answers plain HTTP requests of clients that sign them (NIP-98): events, the management calls of
// NIP-86, and stored queries and counts without a WebSocket.
//
// It owns the way from a request to a key that may act: the body is read within its limit, the
// Authorization header must prove a key for exactly this method, URL and body, the key must be one that
// the community admits, and the proof is used up for all gateways at once, by ingest. When any of this
// cannot be asked, the request is refused: nothing is ever done on a proof that may have been used. What a
// key may do besides is not decided here: ingest and search judge moderation, and a query passes the
// same gates as a REQ.
//
// Requests run on the HTTP server's goroutines, a bounded number at a time; there are no others.
package bridge
