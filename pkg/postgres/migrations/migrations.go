// Package migrations owns the schema: plain SQL files in one ordered sequence, each named after the
// service that owns the tables (00012_audit_chain.sql), run by pkg/postgres. A file that has been released
// is never edited; schema.golden.sql shows what all of them together make.
//
// An index of a table that may be large by then is built beside those who write to it, which no transaction can do and, of a partitioned
// table, no list of statements: a file of Go in the same sequence names such indexes (00020_ingest_indexes.go, Online).
package migrations

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"
)

//go:embed 0*.sql 0*.go
var files embed.FS

// FS holds the migrations, *.sql in its root, and the text of those that are Go.
func FS() fs.FS {
	return files
}

// Online returns the migrations that are Go: they build indexes of large tables without keeping others from writing, in no
// transaction. What a run that was interrupted has left is finished by the next one.
func Online() []*goose.Migration {
	return []*goose.Migration{indexesOfLargeTables()}
}

// names lists all migrations in order.
func names() ([]string, error) {
	list, err := fs.Glob(files, "0*") // sorts
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	return list, nil
}

// Hash identifies the schema that the migrations make: 16 hex digits over their names and contents.
func Hash() (string, error) {
	all, err := names()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range all {
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return "", fmt.Errorf("read migration %s: %w", name, err)
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(content))
		sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

// Latest is the version of the newest migration.
func Latest() (int64, error) {
	all, err := names()
	if err != nil {
		return 0, err
	}
	last := all[len(all)-1]
	digits, _, _ := strings.Cut(last, "_")
	version, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read version of migration %s: %w", last, err)
	}
	return version, nil
}
