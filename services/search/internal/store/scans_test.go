package store

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
)

// named are the statements of this package that are not made for each filter, by the names of their constants.
var named = map[string]string{
	"communityByHost":  communityByHost,
	"topicAccess":      topicAccess,
	"insertDocuments":  insertDocuments,
	"nextCommunity":    nextCommunity,
	"missingDocuments": missingDocuments,
	"sweepDocuments":   sweepDocuments,
	"communities":      communities,
	"members":          members,
	"moderates":        moderates,
	"decided":          decided,
	"profilesNaming":   profilesNaming,
	"profilesTimeout":  profilesTimeout,
	"readSnapshot":     readSnapshot,
	"decisions":        decisions,
	"reports":          reports,
	"actions":          actions,
	"restrictions":     restrictions,
	"prepareSession":   prepareSession,
	"threads":          threads,
	"oldest":           oldest,
	"newest":           newest,
	"oldestShallow":    oldestShallow,
	"newestShallow":    newestShallow,
}

// pieces are constants of SQL that are part of others, and lists the one that is an array.
var pieces = []string{"openThread", "lists"}

// searching are statements that may use bitmaps.
var searching = []string{"profilesNaming"}

// sqlVerb finds what a statement, or a query in one, begins with.
var sqlVerb = regexp.MustCompile(`\b(SELECT|INSERT|UPDATE|DELETE)\b`)

// sqlNames lists the constants and variables of this package whose value has SQL in it.
func sqlNames(t *testing.T) (list []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				value, ok := spec.(*ast.ValueSpec)
				if !ok {
					continue
				}
				for i := range value.Values {
					if hasSQL(value.Values[i]) {
						list = append(list, value.Names[i].Name)
					}
				}
			}
		}
	}
	return list
}

// hasSQL reports whether a text in an expression has SQL, or is made by repliesOf.
func hasSQL(e ast.Expr) (has bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			has = has || n.Kind == token.STRING && sqlVerb.MatchString(n.Value)
		case *ast.Ident:
			has = has || n.Name == "repliesOf"
		}
		return true
	})
	return has
}

// TestStatementsGoAlongIndexes has every statement that is not made for a filter read along the indexes that were reviewed, and no table
// from end to end, whatever its parameters are. An index that is read so is marked: while tables are empty the planner may take one for a
// few rows, as that of all owners.
func TestStatementsGoAlongIndexes(t *testing.T) {
	all := maps.Clone(named)
	for _, name := range sqlNames(t) {
		if !slices.Contains(pieces, name) {
			require.Contains(t, named, name, "a statement that is not explained")
		}
	}
	for i, text := range lists {
		all[fmt.Sprintf("lists[%d]", i)] = text
	}
	s := New(pgtest.New(t), time.Minute, time.Minute)
	var b strings.Builder
	require.NoError(t, s.read(t.Context(), func(ctx context.Context, conn *pgx.Conn, _ session) error {
		b.Reset()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			bitmaps := "off"
			if slices.Contains(searching, name) {
				bitmaps = "on"
			}
			if _, err := conn.Exec(ctx, "SET enable_bitmapscan = "+bitmaps); err != nil {
				return err
			}
			b.WriteString(name + "\n")
			for _, scan := range pgtest.Scans(t, conn, all[name]) {
				require.NotEqual(t, "Seq Scan", scan.Node, "%s: %s", name, scan)
				if scan.Whole {
					b.WriteString("  from end to end:")
				}
				b.WriteString("  " + scan.String() + "\n")
			}
		}
		return nil
	}))
	golden(t, "statements", b.String())
}
