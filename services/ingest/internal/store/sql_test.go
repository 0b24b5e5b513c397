package store

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
)

// statements returns every constant of this package whose name begins with sql.
func statements(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		collect(t, file, found)
	}
	return found
}

func collect(t *testing.T, file *ast.File, found map[string]string) {
	t.Helper()
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			if !strings.HasPrefix(name.Name, "sql") {
				continue
			}
			literal, ok := spec.Values[i].(*ast.BasicLit)
			require.True(t, ok, "%s must be one literal", name.Name)
			text, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			found[name.Name] = text
		}
		return true
	})
}

// TestStatements prepares every statement against the migrated schema, under the role that will run it.
func TestStatements(t *testing.T) {
	f := newFixture(t)
	all := statements(t)
	require.Greater(t, len(all), 30)
	conn, err := f.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for name, text := range all {
		_, err := conn.Conn().Prepare(t.Context(), name, text)
		require.NoError(t, err, name)
	}
}

// whole are statements that read a table from end to end, as they are meant to.
var whole = map[string]string{
	// Of everybody who asked to vanish it is found out whether something is left; they are few.
	"sqlUnfinishedVanished": "Seq Scan vanished",
}

// utility says of a statement that Postgres does not plan it.
func utility(text string) bool {
	verb, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	return slices.Contains([]string{"BEGIN", "COMMIT", "ROLLBACK", "SET"}, verb)
}

// TestPlans checks that no statement reads a table from end to end, however large it is, as the planner has it once tables have
// grown: without sequential scans where there is another way. A statement that was added is among them.
func TestPlans(t *testing.T) {
	f := newFixture(t)
	tx, err := f.admin.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	_, err = tx.Exec(t.Context(), `SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = force_generic_plan`)
	require.NoError(t, err)
	for name, text := range statements(t) {
		if utility(text) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var read []string
			for _, scan := range pgtest.Scans(t, tx, text) {
				if scan.Node == "Seq Scan" {
					read = append(read, scan.String())
				}
			}
			require.Equal(t, whole[name], strings.Join(read, ", "))
		})
	}
	for name := range whole {
		require.Contains(t, statements(t), name)
	}
}
