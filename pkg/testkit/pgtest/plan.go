package pgtest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Session is a connection or a transaction on one.
type Session interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Scan is how a statement reads one table, in one place of its plan. A partition, and its index, count as those of the whole table.
type Scan struct {
	// Node is the sort of scan, as EXPLAIN has it; Table and Index are what is read.
	Node, Table, Index string
	// Whole is set when nothing bounds what is read: neither a condition of the index, nor a limit that ends the scan.
	Whole bool
}

// String names the scan for people.
func (s Scan) String() string { return strings.TrimSuffix(s.Node+" "+s.Table+" "+s.Index, " ") }

// Scans returns how a statement reads tables when it is executed as one that was prepared, whatever its parameters are, under the
// settings of the session. It fails the test if the statement cannot be prepared.
func Scans(tb testing.TB, session Session, statement string) []Scan {
	tb.Helper()
	ctx := tb.Context()
	exec := func(sql string) {
		tb.Helper()
		if _, err := session.Exec(ctx, sql); err != nil {
			tb.Fatalf("%s: %v", sql, err)
		}
	}
	exec("PREPARE scanned AS " + statement)
	var types []string
	err := session.QueryRow(ctx, `SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'scanned'`).Scan(&types)
	if err != nil {
		tb.Fatalf("types of parameters: %v", err)
	}
	execute := "EXPLAIN (FORMAT JSON) EXECUTE scanned"
	if len(types) > 0 {
		values := make([]string, len(types))
		for i, name := range types {
			values[i] = sample(tb, name)
		}
		execute += "(" + strings.Join(values, ", ") + ")"
	}
	var text []byte
	if err := session.QueryRow(ctx, execute, pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
	exec("DEALLOCATE scanned")
	var out []struct{ Plan scanNode }
	if err := json.Unmarshal(text, &out); err != nil {
		tb.Fatalf("read plan: %v", err)
	}
	var scans []Scan
	out[0].Plan.collect(wholes(tb, session), false, &scans)
	return scans
}

// samples are values of the types that statements take.
var samples = map[string]string{
	"bigint": "1", "integer": "1", "smallint": "1", "double precision": "1", "numeric": "1", "xid8": "1", "boolean": "true", "text": "a",
	"bytea": `\x01`, "uuid": "00000000-0000-0000-0000-000000000000", "cidr": "10.0.0.0/8", "inet": "10.0.0.1", "interval": "1 second",
	"timestamp with time zone": "2026-01-01 00:00:00Z",
}

// sample is a value of a type as a literal of SQL.
func sample(tb testing.TB, name string) string {
	tb.Helper()
	element, list := strings.CutSuffix(name, "[]")
	value, ok := samples[element]
	if !ok {
		tb.Fatalf("no sample of type %s", name)
	}
	if list {
		value = `{"` + strings.ReplaceAll(value, `\`, `\\`) + `"}`
	}
	return "'" + value + "'::" + name
}

// wholes returns for each partition, and each index of one, the name of what it is part of.
func wholes(tb testing.TB, session Session) map[string]string {
	tb.Helper()
	var text []byte
	err := session.QueryRow(tb.Context(), `SELECT coalesce(json_object_agg(c.relname, p.relname), '{}') FROM pg_inherits i
		JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent`).Scan(&text)
	of := map[string]string{}
	if err == nil {
		err = json.Unmarshal(text, &of)
	}
	if err != nil {
		tb.Fatalf("list partitions: %v", err)
	}
	return of
}

// scanNode is a node of EXPLAIN's output.
type scanNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	Index    string     `json:"Index Name"`
	Cond     string     `json:"Index Cond"`
	Plans    []scanNode `json:"Plans"`
}

// gather are nodes that read all that is below them before they return anything.
var gather = []string{"Sort", "Incremental Sort", "Aggregate", "WindowAgg", "Hash", "SetOp", "ModifyTable"}

// collect appends the scans of a tree. limited is set below a limit.
func (n *scanNode) collect(wholes map[string]string, limited bool, scans *[]Scan) {
	whole := func(name string) string {
		if of, ok := wholes[name]; ok {
			return of
		}
		return name
	}
	switch {
	case n.Type == "Limit":
		limited = true
	case slices.Contains(gather, n.Type):
		limited = false
	case n.Type == "Bitmap Heap Scan": // the index below it says what is read
	case n.Relation != "" || n.Index != "":
		node := strings.Replace(n.Type, "Index Only Scan", "Index Scan", 1) // that depends on vacuum
		*scans = append(*scans, Scan{Node: node, Table: whole(n.Relation), Index: whole(n.Index), Whole: n.Cond == "" && !limited})
	}
	for i := range n.Plans {
		n.Plans[i].collect(wholes, limited, scans)
	}
}
