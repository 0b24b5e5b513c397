// Package fault is the error taxonomy of Apiary: one closed set of reasons, and for each reason its
// NIP-01 prefix, its gRPC code and its HTTP status (see table.go).
//
// It owns the text that clients see. Frame and FrameText are the only places where a NIP-01 message
// is made, and the server interceptors are the only place where an error without a reason becomes
// INTERNAL. The cause of an error (driver text, addresses, SQL) is for the log and never leaves the
// process.
//
// A verdict on one event is data and travels as a Reason plus a message inside a response; an Error
// means that a whole call failed.
//
// Everything here is a value or a pure function and safe for concurrent use.
package fault
