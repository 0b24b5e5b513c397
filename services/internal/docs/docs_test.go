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
	"strconv"
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

// Limits that have a setting are the programs' defaults, as the reference has them.
func TestLimitsAreTheDefaults(t *testing.T) {
	t.Parallel()
	defaults := settings(page(t, "configuration.md"))
	value := regexp.MustCompile("([0-9][0-9,]*)( bytes| KiB| MiB| events|ms|s|m|h|)? ?\\(`([a-z.-]+)`\\)")
	named := regexp.MustCompile("\\(`([a-z.-]+)`\\)")
	for _, section := range strings.Split(page(t, "limits.md"), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		if name == "The bus" {
			name = "ingest"
		}
		matches := value.FindAllStringSubmatch(text, -1)
		require.Len(t, matches, len(named.FindAllString(text, -1)), "settings without a value in %s", name)
		for _, match := range matches {
			want, ok := defaults[name][match[3]]
			if !ok {
				want, ok = defaults["Every service"][match[3]]
			}
			require.True(t, ok, "%s has no setting %s", name, match[3])
			require.Equal(t, want, plain(t, match[1], match[2]), "%s of %s", match[3], name)
		}
	}
}

// settings returns the defaults in the reference, by section and name.
func settings(reference string) map[string]map[string]string {
	line := regexp.MustCompile("(?m)^\\| `--([a-z.-]+)` \\| [^|]*\\| `?([^|`]*)`? \\|")
	list := make(map[string]map[string]string)
	for _, section := range strings.Split(reference, "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		list[name] = make(map[string]string)
		for _, match := range line.FindAllStringSubmatch(text, -1) {
			list[name][match[1]] = match[2]
		}
	}
	return list
}

// plain is a number as a setting has it.
func plain(t *testing.T, number, unit string) string {
	t.Helper()
	number = strings.ReplaceAll(number, ",", "")
	factor := map[string]int{" KiB": 1 << 10, " MiB": 1 << 20}[unit]
	switch {
	case factor > 0:
		n, err := strconv.Atoi(number)
		require.NoError(t, err)
		return strconv.Itoa(n * factor)
	case len(unit) <= 2:
		return number + unit
	}
	return number // a word
}

// Every test that a page names exists, as directory.Name.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	exists := make(map[string]bool)
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(t `)
	for _, directory := range []string{"pkg", "services", "tools"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, directory), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range declared.FindAllStringSubmatch(string(text), -1) {
				exists[filepath.Base(filepath.Dir(path))+"."+match[1]] = true
			}
			return err
		}))
	}
	names := regexp.MustCompile("`([a-z]+\\.Test\\w+)`").FindAllStringSubmatch(page(t, "promises.md")+page(t, "nips.md")+page(t, "architecture.md"), -1)
	require.NotEmpty(t, names)
	for _, match := range names {
		require.True(t, exists[match[1]], "no test is called %s", match[1])
	}
}

// Every failure of the architecture's table names what shows it, every scenario that it names exists, and every scenario
// that exists is named. What dies in any such system is in the table.
func TestEveryFailureIsShown(t *testing.T) {
	t.Parallel()
	_, section, ok := strings.Cut(page(t, "architecture.md"), "\n## When something dies\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| (.+?) \| .+ \| .+ \| (.+) \|$`).FindAllStringSubmatch(section, -1)[2:] // below the heading
	files, err := filepath.Glob(filepath.Join(root, "tools/chaos/scenarios/*.yaml"))
	require.NoError(t, err)
	missing := make(map[string]bool)
	for _, file := range files {
		missing[strings.TrimSuffix(filepath.Base(file), ".yaml")] = true
	}
	fails := make(map[string]bool)
	for _, row := range rows {
		fails[row[1]] = true
		require.Regexp(t, "`([a-z]+\\.Test\\w+|[a-z-]+)`", row[2], "nothing shows what happens when this fails: %s", row[1])
		for _, name := range regexp.MustCompile("`([a-z]+(?:-[a-z]+)*)`").FindAllStringSubmatch(row[2], -1) {
			require.FileExists(t, filepath.Join(root, "tools/chaos/scenarios", name[1]+".yaml"))
			delete(missing, name[1])
		}
	}
	require.Empty(t, missing, "scenarios that no failure names")
	for _, name := range []string{
		"a gateway", "a fan-out node", "an ingest replica", "search", "audit, workflow, media", "NATS", "Postgres",
		"a zone of the network: several of these at once",
	} {
		require.True(t, fails[name], "the table does not say what happens when this fails: %s", name)
	}
}

// Every case of the suite that a page names in italics exists.
func TestNamedCasesExist(t *testing.T) {
	t.Parallel()
	exists := suiteCases(t)
	text := page(t, "promises.md") + page(t, "nips.md") + page(t, "http.md") + page(t, "acceptance.md")
	lists := regexp.MustCompile(`cases? (\*[^*]+\*(?:(?:,| and) \*[^*]+\*)*)`).FindAllString(text, -1)
	require.NotEmpty(t, lists)
	for _, list := range lists {
		for _, name := range regexp.MustCompile(`\*([^*]+)\*`).FindAllStringSubmatch(list, -1) {
			require.True(t, exists[name[1]], "no case is called %s", name[1])
		}
	}
}

// suiteCases returns the names of the cases that run on both topologies.
func suiteCases(t *testing.T) map[string]bool {
	t.Helper()
	list := make(map[string]bool)
	for _, file := range []string{"cases_test.go", "acceptance_test.go"} {
		for _, match := range regexp.MustCompile(`(?m)^\t\{"([^"]+)", \w+\},`).FindAllStringSubmatch(readFile(t, "services/internal/cluster/"+file), -1) {
			require.False(t, list[match[1]], "two cases are called %s", match[1])
			list[match[1]] = true
		}
	}
	require.NotEmpty(t, list)
	return list
}

// The page of acceptance cases says of each what is true: those that hold, or differ, are cases of the suite, the others
// are not, and no case that is named like them is left out.
func TestAcceptanceCases(t *testing.T) {
	t.Parallel()
	rows := regexp.MustCompile("(?m)^\\| \\d+ \\| `(\\w+)` \\| (\\w+)[^|]* \\|$").FindAllStringSubmatch(page(t, "acceptance.md"), -1)
	require.NotEmpty(t, rows)
	exists, listed := suiteCases(t), make(map[string]bool)
	for _, row := range rows {
		name, state := row[1], row[2]
		require.False(t, listed[name], "%s is on the page twice", name)
		listed[name] = true
		require.Equal(t, state == "holds" || state == "differs", exists[name], "acceptance.md says of %s: %s", name, state)
	}
	require.Len(t, rows, strings.Count(page(t, "acceptance.md"), "\n| ")-3*2, "some row cannot be read")
	for name := range exists {
		if regexp.MustCompile(`^\w+$`).MatchString(name) {
			require.True(t, listed[name], "acceptance.md does not know of %s", name)
		}
	}
}

// The README has every NIP that the relay advertises, and of each that has conformance cases a link to them.
func TestReadmeLinksToTheCases(t *testing.T) {
	t.Parallel()
	rows := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d\d(?:, \d\d)*) \|.*$`).FindAllStringSubmatch(readFile(t, "README.md"), -1) {
		for nip := range strings.SplitSeq(row[1], ", ") {
			rows[nip] = row[0]
		}
	}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d\d) \| ● \|`).FindAllStringSubmatch(page(t, "nips.md"), -1) {
		require.Contains(t, rows, row[1])
	}
	for _, heading := range regexp.MustCompile(`(?m)^## NIP-(\d\d)$`).FindAllStringSubmatch(page(t, "cases.md"), -1) {
		if row, supported := rows[heading[1]]; supported {
			require.Contains(t, row, "(services/docs/cases.md#nip-"+heading[1]+")")
		}
	}
}

// The map says who owns each table.
func TestEveryTableHasAnOwner(t *testing.T) {
	t.Parallel()
	text := readFile(t, "services/README.md")
	files, err := filepath.Glob(filepath.Join(root, "pkg", "postgres", "migrations", "*.sql"))
	require.NoError(t, err)
	created := regexp.MustCompile(`(?m)^CREATE TABLE \w+\.(\w+) \(`)
	count := 0
	for _, path := range files {
		if strings.HasSuffix(path, ".golden.sql") {
			continue
		}
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		up, _, _ := strings.Cut(string(content), "-- +goose Down")
		for _, match := range created.FindAllStringSubmatch(up, -1) {
			count++
			require.Contains(t, text, "`"+match[1]+"`")
		}
	}
	require.NotZero(t, count)
}
