// Package audit is the place of the append-only, hash-chained log of each community.
//
// What it does today: it connects to Postgres with its own role, apiary_audit, which can use the schema
// audit and no other, checks in the background that the database lets it in as that role, exposes
// health and metrics on the admin listener, and answers gRPC health checks. It holds no feature: there is no
// other RPC, no table and no consumer, and nothing depends on it.
package audit
