package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATE codes that callers branch on.
const (
	codeUniqueViolation     = "23505"
	codeForeignKeyViolation = "23503"
	codeCheckViolation      = "23514"
	codeSerialization       = "40001"
	codeDeadlock            = "40P01"
	codeLockNotAvailable    = "55P03"
	codeQueryCanceled       = "57014"
	codePrivilege           = "42501"
	codeReadOnly            = "25006"
	codeUndefinedTable      = "42P01"
)

func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// IsUniqueViolation reports whether a unique key was already taken.
func IsUniqueViolation(err error) bool { return code(err) == codeUniqueViolation }

// IsForeignKeyViolation reports whether a referenced row is missing, or still referenced.
func IsForeignKeyViolation(err error) bool { return code(err) == codeForeignKeyViolation }

// IsCheckViolation reports whether a value was refused by a CHECK constraint.
func IsCheckViolation(err error) bool { return code(err) == codeCheckViolation }

// IsDenied reports whether the role may not do this, or the transaction is read-only.
func IsDenied(err error) bool {
	c := code(err)
	return c == codePrivilege || c == codeReadOnly
}

// IsRetryable reports whether the transaction was aborted only because of other transactions.
func IsRetryable(err error) bool {
	c := code(err)
	return c == codeSerialization || c == codeDeadlock
}

// IsTimeout reports whether a statement, a lock or the context took too long.
func IsTimeout(err error) bool {
	c := code(err)
	return c == codeQueryCanceled || c == codeLockNotAvailable || errors.Is(err, context.DeadlineExceeded)
}

// IsUnavailable reports whether the server could not be reached, went away, or takes no more
// connections: the caller may try again later, and must not assume that nothing happened.
func IsUnavailable(err error) bool {
	if err == nil {
		return false
	}
	if c := code(err); c != "" {
		// 08: connection; 53: out of resources; 57P: shutting down or starting up.
		return strings.HasPrefix(c, "08") || strings.HasPrefix(c, "53") || strings.HasPrefix(c, "57P")
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		// A server that died in the middle of an answer, and what comes of the connection after that.
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, pgconn.ErrConnClosed)
}

// ConstraintName returns the constraint that was violated, empty if none was.
func ConstraintName(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.ConstraintName
	}
	return ""
}
