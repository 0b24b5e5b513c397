// Package tenant identifies communities.
//
// A community is a function of the Host header and of nothing else. This package owns the
// normalisation of host names, the type of a community's surrogate key, and its place in a context
// and in a log line. It must never look a community up: that is search's work. It has no state; all
// functions are safe for concurrent use.
package tenant

import (
	"context"
	"log/slog"
	"strconv"
)

// ID is the surrogate key of a community. It is never 0 and never shown to clients.
type ID int64

// String returns the decimal form, for subjects and logs.
func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }

// LogKey is the attribute key of a community in logs and traces.
const LogKey = "community"

// Attr returns the log attribute of a community.
func Attr(id ID) slog.Attr { return slog.Int64(LogKey, int64(id)) }

type ctxKey struct{}

// With returns a context that carries id. The log handler of pkg/telemetry adds it to every line.
func With(ctx context.Context, id ID) context.Context {
	return context.WithValue(ctx, ctxKey{}, id)
}

// From returns the community that With put into ctx.
func From(ctx context.Context) (ID, bool) {
	id, ok := ctx.Value(ctxKey{}).(ID)
	return id, ok
}
