// Package apiary is the all-in-one: a gateway, ingest, a fan-out node and search in one process, each the
// same code as in a cluster, calling each other over gRPC in memory.
//
// This is the only place where one process and many differ. It decides what is connected to what, and
// nothing else: no service can ask where it runs, and nothing here looks at an event. What the services
// share with the outside (the database pools, the bus) is given to it and stays the caller's.
//
// The order of start is search, fan-out, ingest, gateway: whoever is called is there before its caller.
// Draining and stopping go the other way, so that clients are told first and what they sent is finished.
package apiary
