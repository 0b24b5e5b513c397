// Package migrations owns the schema: plain SQL files in one ordered sequence, each named after the
// service that owns the tables (00012_audit_chain.sql), run by pkg/postgres. A file that has been released
// is never edited; schema.golden.sql shows what all of them together make.
package migrations

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

//go:embed 0*.sql
var files embed.FS

// FS holds the migrations, *.sql in its root.
func FS() fs.FS {
	return files
}

// Hash identifies the schema that the migrations make: 16 hex digits over their names and contents.
func Hash() (string, error) {
	names, err := fs.Glob(files, "0*.sql")
	if err != nil {
		return "", fmt.Errorf("list migrations: %w", err)
	}
	sum := sha256.New()
	for _, name := range names { // Glob sorts
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
	names, err := fs.Glob(files, "0*.sql")
	if err != nil || len(names) == 0 {
		return 0, fmt.Errorf("list migrations: %d found: %w", len(names), err)
	}
	digits, _, _ := strings.Cut(names[len(names)-1], "_")
	version, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read version of migration %s: %w", names[len(names)-1], err)
	}
	return version, nil
}
