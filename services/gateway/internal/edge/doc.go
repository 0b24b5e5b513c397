// Package edge is the HTTP front of the gateway: it finds the community of a request's host, answers
// NIP-11, refuses what must not be upgraded, turns an upgrade into a connection with a session, and passes
// calls over HTTP to package bridge.
//
// The community comes from the host before anything else is looked at; the operators' hosts have none, and their own
// API. For a host without a community every request gets the same bytes, whatever its path, method or headers, and so does
// every path of a known host that does not exist. Only the relay information (NIP-11) is the same for all hosts, with or
// without a community, but for what a community says of itself: so it is no list of them. Clients of a network that the community has blocked get one answer to everything, too. The
// package reads no body and must never trust a forwarded host or address unless told to.
//
// Requests run on the HTTP server's goroutines; an upgraded connection leaves them, so that the server's per-request state
// is freed, and Wait waits for its end. The directory's cache is shared and
// guarded by its mutex.
package edge
