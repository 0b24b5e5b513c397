// Package docs compares the pages in services/docs with the code that they describe: a subject, a stream or
// a lock without its line fails here. It holds tests only.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the repository, seen from this package.
const root = "../../.."

// page returns a page of services/docs.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "services", "docs", name))
	require.NoError(t, err)
	return string(text)
}

// source is one file of Go.
type source struct {
	path string // from the repository's root, with slashes
	*ast.File
}

// sources parses the Go files below the directories, without tests and generated code.
func sources(t *testing.T, directories ...string) []source {
	t.Helper()
	var list []source
	for _, directory := range directories {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, directory), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			relative, err := filepath.Rel(root, path)
			if !ast.IsGenerated(file) {
				list = append(list, source{filepath.ToSlash(relative), file})
			}
			return err
		}))
	}
	require.NotEmpty(t, list)
	return list
}

// row returns the line of a page's table that holds a word in backticks, and fails without one.
func row(t *testing.T, page, word string) string {
	t.Helper()
	for line := range strings.Lines(page) {
		if strings.Contains(line, "`"+word+"`") {
			return line
		}
	}
	require.FailNow(t, "not on the page", "no line names `%s`", word)
	return ""
}

// Links of the pages lead somewhere.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	pages, err := filepath.Glob(filepath.Join(root, "services", "docs", "*.md"))
	require.NoError(t, err)
	decisions, err := filepath.Glob(filepath.Join(root, "services", "docs", "adr", "*.md"))
	require.NoError(t, err)
	pages = append(append(pages, decisions...), filepath.Join(root, "README.md"), filepath.Join(root, "services", "README.md"))
	for _, path := range pages {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			_, err := os.Stat(filepath.Join(filepath.Dir(path), match[1]))
			require.NoError(t, err, "a link of %s", path)
		}
	}
}

// readFile returns a file of the repository.
func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}
