// Package gateway is the service that clients talk to: WebSocket connections, their authentication and
// their subscriptions, and the relay information document.
//
// Invariants, each with its place:
//
//   - The community comes from the host before anything else (internal/edge).
//   - Every EVENT gets exactly one OK, and OK true only after ingest's accepting verdict
//     (internal/session, internal/submit).
//   - A live subscription gets every event once from its history snapshot on, across loss of fan-out
//     nodes, or is closed as lagged (internal/live, internal/session).
//   - OK, EOSE, CLOSED, AUTH and NOTICE are never dropped on a socket that stays open; event frames are
//     dropped only together with their subscription (internal/conn).
//   - Everything that waits is bounded by Config.
//
// The gateway keeps its state in memory only and speaks to ingest, fan-out and search by gRPC. It must
// never import a database or the bus, judge the content of an event, or hold a lock while it waits for a
// client. Goroutines are described in the internal packages; Service.Run starts and waits for all of
// them.
package gateway
