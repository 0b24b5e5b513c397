package docs

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
)

// names are what the exported names of pkg/bus/subject stand for on the page.
var names = map[string]string{
	"StreamEvents":    subject.StreamEvents,
	"StreamEphemeral": subject.StreamEphemeral,
	"AllEvents":       subject.AllEvents,
	"AllEphemeral":    subject.AllEphemeral,
	"AllControl":      subject.Control(1)[:len(subject.Control(1))-1] + "<community>",
	"Events":          strings.TrimSuffix(subject.Events(0), "0") + "<partition>",
	"Ephemeral":       strings.TrimSuffix(subject.Ephemeral(0), "0") + "<partition>",
	"Control":         strings.TrimSuffix(subject.Control(1), "1") + "<community>",
	"Quota":           subject.Quota,
	"BucketPresence":  subject.BucketPresence,
	"PresenceKey":     "<community>.<public key>.<gateway>",
}

// exported returns the exported names of a package's files that build or are a subject.
func exported(files []source) []string {
	var list []string
	for _, file := range files {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				list = append(list, d.Name.Name)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.CONST {
						for _, name := range v.Names {
							list = append(list, name.Name)
						}
					}
				}
			}
		}
	}
	return slices.DeleteFunc(list, func(name string) bool {
		return !ast.IsExported(name) || strings.HasPrefix(name, "Parse")
	})
}

func TestEverySubjectHasItsRow(t *testing.T) {
	t.Parallel()
	text := page(t, "subjects.md")
	list := exported(sources(t, "pkg/bus/subject"))
	require.ElementsMatch(t, list, slices.Collect(maps.Keys(names)), "names of pkg/bus/subject and of this test")
	for _, name := range list {
		require.Contains(t, row(t, text, "subject."+name), "`"+names[name]+"`", name)
	}
}

// A row names the services that use its subject, and says so when nobody does.
func TestRowsNameWhoUsesThem(t *testing.T) {
	t.Parallel()
	users := make(map[string]map[string]bool) // services by name
	for _, file := range sources(t, "services", "tools") {
		if !imports(file, "github.com/apiary-relay/apiary/pkg/bus/subject") {
			continue
		}
		ast.Inspect(file.File, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "subject" && names[s.Sel.Name] != "" {
					if users[s.Sel.Name] == nil {
						users[s.Sel.Name] = make(map[string]bool)
					}
					users[s.Sel.Name][strings.Split(file.path, "/")[1]] = true
				}
			}
			return true
		})
	}
	text := page(t, "subjects.md")
	for _, name := range []string{"Events", "Ephemeral", "Control", "Quota", "BucketPresence"} {
		line := row(t, text, "subject."+name)
		for service := range users[name] {
			require.Contains(t, line, service, name)
		}
		require.Equal(t, len(users[name]) == 0, strings.Contains(line, "nobody"), name)
	}
}

func imports(file source, importPath string) bool {
	return slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return strings.Trim(i.Path.Value, `"`) == importPath })
}

// The definitions are read back from a server, so that the page says what is in force.
func TestStreamsAreAsDocumented(t *testing.T) {
	t.Parallel()
	server := bustest.New(t)
	require.NoError(t, server.Connect(t).EnsureStreams(t.Context(), bus.StreamOptions{}))
	conn, err := nats.Connect("", nats.InProcessServer(server))
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	text := page(t, "subjects.md")
	streams := js.ListStreams(t.Context())
	count := 0
	for info := range streams.Info() {
		count++
		c := info.Config
		require.Equal(t, jetstream.LimitsPolicy, c.Retention)
		require.Equal(t, jetstream.DiscardOld, c.Discard)
		require.Negative(t, c.MaxMsgs, "no limit")
		cells := strings.Split(row(t, text, c.Name), " | ")
		require.Contains(t, cells[1], "`"+strings.Join(c.Subjects, "`, `")+"`", c.Name)
		require.Equal(t, strings.ToLower(c.Storage.String()), cells[2], c.Name)
		require.Equal(t, short(c.MaxAge), cells[3], c.Name)
		require.Regexp(t, "^"+size(c.MaxBytes)+", `"+strings.ToLower(c.Name)+"-max-bytes` ", cells[4], c.Name)
		require.Equal(t, short(c.Duplicates), cells[5], c.Name)
	}
	require.NoError(t, streams.Err())
	require.NotZero(t, count)
	require.Equal(t, count, strings.Count(text, "`subject.Stream"), "rows and streams")
}

// short is a duration as the page writes it.
func short(d fmt.Stringer) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

func size(n int64) string {
	if n%(1<<30) == 0 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// Payloads that the page names are in the contract.
func TestPayloadsAreInTheContract(t *testing.T) {
	t.Parallel()
	text := page(t, "subjects.md")
	for _, name := range []string{"Events", "Ephemeral"} {
		require.Contains(t, row(t, text, "subject."+name), "`EnvelopeBatch`")
	}
	contract := readFile(t, "proto/apiary/bus/v1/bus.proto")
	require.Contains(t, contract, "message EnvelopeBatch {")
}
