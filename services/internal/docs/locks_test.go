package docs

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// isMutex reports whether an expression names one of the standard library's mutexes.
func isMutex(e ast.Expr) bool {
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	s, ok := e.(*ast.SelectorExpr)
	if !ok || (s.Sel.Name != "Mutex" && s.Sel.Name != "RWMutex") {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "sync"
}

// locks finds mutexes and what they are called: package.Type.field, package.variable.field, or
// package.function.variable. An embedded mutex is called as what embeds it.
type locks struct {
	named []string
	all   int // every mention of a mutex type
}

func (l *locks) file(file source) {
	name := file.Name.Name
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				l.inside(d.Body, name+"."+d.Name.Name)
			}
		case *ast.GenDecl:
			l.specs(d, name)
		}
	}
	ast.Inspect(file.File, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && isMutex(e) {
			l.all++
			return false
		}
		return true
	})
}

// inside looks at the declarations in a function.
func (l *locks) inside(body ast.Node, function string) {
	ast.Inspect(body, func(n ast.Node) bool {
		if d, ok := n.(*ast.GenDecl); ok {
			l.specs(d, function)
		}
		return true
	})
}

func (l *locks) specs(d *ast.GenDecl, scope string) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			l.typ(s.Type, scope+"."+s.Name.Name)
		case *ast.ValueSpec:
			for _, name := range s.Names {
				l.typ(s.Type, scope+"."+name.Name)
			}
		}
	}
}

// typ looks at a type that is called name.
func (l *locks) typ(e ast.Expr, name string) {
	if e == nil {
		return
	}
	if isMutex(e) {
		l.named = append(l.named, name)
		return
	}
	s, ok := e.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range s.Fields.List {
		if len(field.Names) == 0 {
			l.typ(field.Type, name)
		}
		for _, n := range field.Names {
			l.typ(field.Type, name+"."+n.Name)
		}
	}
}

func TestEveryMutexHasItsLine(t *testing.T) {
	t.Parallel()
	var found locks
	for _, file := range sources(t, "pkg", "services") {
		found.file(file)
	}
	require.Len(t, found.named, found.all, "a mutex that is not a field or a declared variable: give it a name")

	_, text, ok := strings.Cut(page(t, "locks.md"), "\n## Mutexes\n")
	require.True(t, ok)
	text, order, ok := strings.Cut(text, "\n## Order\n")
	require.True(t, ok)
	var listed []string
	for _, match := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(text, -1) {
		listed = append(listed, match[1])
	}
	require.True(t, slices.IsSorted(listed), "lines are sorted by name")
	slices.Sort(found.named)
	require.Equal(t, found.named, listed, "mutexes in the code, and on the page")

	// What has an order is one of them.
	order, _, _ = strings.Cut(order, "\n## ")
	for _, match := range regexp.MustCompile("`([a-z]+\\.[A-Za-z.]+)`").FindAllStringSubmatch(order, -1) {
		require.True(t, slices.ContainsFunc(listed, func(name string) bool { return strings.HasPrefix(name+".", match[1]+".") }), match[1])
	}
}

func TestEveryAdvisoryLockHasItsLine(t *testing.T) {
	t.Parallel()
	text := page(t, "locks.md")
	found := 0
	for _, directory := range []string{"pkg", "services"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, directory), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || (filepath.Ext(path) != ".go" && filepath.Ext(path) != ".sql") {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(content), "pg_advisory") || strings.HasSuffix(path, ".golden.sql") {
				return err
			}
			found++
			relative, err := filepath.Rel(root, path)
			require.Contains(t, text, "`"+filepath.ToSlash(relative)+"`")
			return err
		}))
	}
	require.NotZero(t, found)
}
