package store

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	"github.com/apiary-relay/apiary/services/search/internal/access"
	"github.com/apiary-relay/apiary/services/search/internal/fixture"
	"github.com/apiary-relay/apiary/services/search/internal/plan"
)

var update = flag.Bool("update", false, "rewrite the golden plans")

// node is a node of EXPLAIN's output.
type node struct {
	Type     string   `json:"Node Type"`
	Relation string   `json:"Relation Name"`
	Index    string   `json:"Index Name"`
	Parent   string   `json:"Parent Relationship"`
	SortKey  []string `json:"Sort Key"`
	Filter   string   `json:"Filter"`
	Rows     float64  `json:"Actual Rows"`
	Loops    float64  `json:"Actual Loops"`
	Removed  float64  `json:"Rows Removed by Filter"`
	Plans    []node   `json:"Plans"`
}

// planLimit is the limit of every case.
const planLimit = 20

// hexOf is the value of a tag that names an id or a key.
func hexOf(b [32]byte) string { return nostr.ID(b).String() }

func feedKinds(f kind.Feeds) []nostr.Kind {
	return kind.List(func(r kind.Rules) bool { return r.Feeds&f != 0 })
}

func tag(name byte, values ...string) nostr.TagCondition {
	return nostr.TagCondition{Name: name, Values: values}
}

// planCases has a filter for each driver; values is how many values drive.
func planCases() []planCase {
	authors := []nostr.PubKey{fixture.Author(1), fixture.Author(2), fixture.Author(50)}
	channels := make([]string, 100) // of which 20 exist
	for i := range channels {
		channels[i] = "c" + strconv.Itoa(i+1)
	}
	return []planCase{
		{"ids", 3, nostr.Filter{IDs: []nostr.ID{fixture.EventID(1), fixture.EventID(59_000), fixture.EventID(60_001)}}},
		{"address", 15, nostr.Filter{Kinds: []nostr.Kind{0, 30023}, Authors: authors}},
		{"tag", 1, nostr.Filter{Tags: []nostr.TagCondition{tag('p', hexOf(fixture.Author(3)))}}},
		{"tag_many", 2, nostr.Filter{Tags: []nostr.TagCondition{tag('e', hexOf(fixture.EventID(0)), hexOf(fixture.EventID(30_000)))}}},
		{"tag_in_channel", 1, nostr.Filter{
			Kinds: []nostr.Kind{9}, Tags: []nostr.TagCondition{tag('h', "c1"), tag('e', hexOf(fixture.EventID(0))), tag('p', hexOf(fixture.Author(3)))},
		}},
		{"tag_and_tag", 1, nostr.Filter{Tags: []nostr.TagCondition{
			tag('e', hexOf(fixture.EventID(0))), tag('p', hexOf(fixture.Author(3)), hexOf(fixture.Author(4))),
		}}},
		{"channel", 3, nostr.Filter{Kinds: []nostr.Kind{9}, Tags: []nostr.TagCondition{tag('h', "c1", "c4", "none")}}},
		{"channel_all", 1, nostr.Filter{Tags: []nostr.TagCondition{tag('h', "c1")}}},
		{"authors", 3, nostr.Filter{Authors: authors, Kinds: []nostr.Kind{1, 7, 9}}},
		{"kinds", 2, nostr.Filter{Kinds: []nostr.Kind{7, 9}}},
		{"time", 1, nostr.Filter{}},
		{"words", 1, nostr.Filter{Search: "bees"}},
		{"feed_mentions", 1, nostr.Filter{Kinds: feedKinds(kind.Mentions), Tags: []nostr.TagCondition{tag('p', hexOf(fixture.Author(3)))}}},
		{"feed_needs_action", 1, nostr.Filter{Kinds: feedKinds(kind.NeedsAction), Tags: []nostr.TagCondition{tag('p', hexOf(fixture.Author(3)))}}},
		{"feed_activity", 6, nostr.Filter{Kinds: feedKinds(kind.Activity)}},
		{"window", 1, nostr.Filter{Kinds: []nostr.Kind{9}, Tags: []nostr.TagCondition{tag('h', "c2")}}},
		{"channel_stepped", 4, nostr.Filter{Kinds: []nostr.Kind{9}, Tags: []nostr.TagCondition{tag('h', channels...)}}},
	}
}

type planCase struct {
	name   string
	values int
	filter nostr.Filter
}

// statement is one of the package's own, with the arguments that a case explains it with; values is what bounds how much it reads, as
// with a planCase.
type statement struct {
	name   string
	values int
	plan   plan.Plan
}

// statements has the case of every filter, and those that read threads.
func statements(t *testing.T) []statement {
	t.Helper()
	var list []statement
	cases := planCases()
	for i := range cases {
		list = append(list, statement{cases[i].name, cases[i].values, cases[i].plan(t)})
	}
	root, r := fixture.EventID(0), access.Reader{Community: fixture.Seeded, Keys: []nostr.PubKey{fixture.Author(2)}, Now: fixture.End}
	for _, c := range []struct {
		name string
		page Page
	}{
		{"thread", Page{Root: root, Depth: 100, Limit: planLimit}},
		{"thread_newest", Page{Root: root, Depth: 100, Channel: "c1", Kinds: []nostr.Kind{9}, Newest: true, Limit: planLimit}},
		{"thread_shallow", Page{Root: root, Depth: 2, Limit: planLimit}},
		{"thread_shallow_newest", Page{Root: root, Depth: 2, Newest: true, Limit: planLimit}},
	} {
		sql, args := c.page.statement(r, planLimit+1, pageBytes)
		list = append(list, statement{c.name, 1, plan.Plan{SQL: sql, Args: args}})
	}
	keys := [][]byte{r.Keys[0][:]}
	return append(list, statement{"thread_summaries", 2, plan.Plan{SQL: threads, Args: []any{int64(r.Community), keys, [][]byte{root[:]}, r.Now}}})
}

// Each driver's statement uses its index, sorts nothing on its way to the limit, and reads little more
// than it returns: one row ahead in each monthly partition, and what the reader may not see. It does so
// whatever the statistics: a plan made while the partitions are empty is the same.
func TestPlans(t *testing.T) {
	s := New(pgtest.New(t), time.Minute, time.Minute)
	db := fixture.New(t.Context(), s.pool)
	db.Partitions(t)
	before := map[string]string{}
	for _, c := range statements(t) {
		tree, parents := s.explain(t, c.plan, true)
		before[c.name] = tree.normalise(parents)
		require.Empty(t, tree.filteredKeys(parents), "%s on empty partitions", c.name)
	}
	db.Seed(t, 60_000)
	for _, c := range statements(t) {
		t.Run(c.name, func(t *testing.T) {
			tree, parents := s.explain(t, c.plan, true)
			golden(t, c.name, tree.normalise(parents))
			require.Empty(t, tree.filteredKeys(parents), "what is in the index is looked up, not filtered")
			require.Equal(t, tree.normalise(parents), before[c.name], "the plan on empty partitions")
			read := tree.read(parents)
			require.NotZero(t, read)
			require.LessOrEqual(t, read, float64(c.values*(3*planLimit+fixture.Months+1)), "rows read")

			// With the planner left to itself, no event table is read from end to end either.
			tree, _ = s.explain(t, c.plan, false)
			require.NotContains(t, tree.scanned(), "Seq Scan", "default planner settings")
		})
	}
}

// TestAPageOfAThreadReadsNoMoreThanItLooksAt has a thread of which nearly all is deeper than the page goes, or of another kind. Those that are
// deeper are not read at all, and one statement passes over as many others as it was told and no more.
func TestAPageOfAThreadReadsNoMoreThanItLooksAt(t *testing.T) {
	s := New(pgtest.New(t), time.Minute, time.Minute)
	db := fixture.New(t.Context(), s.pool)
	community := db.Community(t, "open")
	db.Channel(t, community, "lobby", "open")
	root := fixture.EventID(0)
	db.Exec(t, `
INSERT INTO ingest.events (community_id, id, pubkey, kind, created_at, channel_id, raw)
SELECT $1, sha256(n::text::bytea), $2, 9, n, (SELECT id FROM ingest.channels), '{}' FROM generate_series(1, 3000) AS n`, int64(community), root[:])
	db.Exec(t, `
INSERT INTO ingest.replies (community_id, id, root_id, parent_id, depth, broadcast, pubkey, created_at)
SELECT community_id, id, $1, $1, CASE WHEN created_at % 100 = 0 THEN 1 ELSE 3 END, false, pubkey, created_at FROM ingest.events`, root[:])
	r := access.Reader{Community: community, Now: fixture.End}
	for _, page := range []Page{
		{Depth: 2},
		{Depth: 2, Newest: true},
		{Depth: 100, Kinds: []nostr.Kind{1}},
		{Depth: 100, Kinds: []nostr.Kind{1}, Newest: true},
		{Depth: 99, Kinds: []nostr.Kind{1}},
	} {
		page.Root = root
		sql, args := page.statement(r, planLimit, pageBytes)
		tree, parents := s.explain(t, plan.Plan{SQL: sql, Args: args}, true)
		// Of each depth so many replies, and the next one of another second; of those together so many events; and one of each to find the
		// channel.
		require.LessOrEqual(t, tree.read(parents), float64(2*(planLimit+1)+planLimit+2), page)
	}
}

func (c *planCase) plan(t *testing.T) plan.Plan {
	t.Helper()
	r := access.Reader{Community: fixture.Seeded, Keys: []nostr.PubKey{fixture.Author(2)}, Now: fixture.End}
	p, ok := plan.Rows(&c.filter, r, planLimit, 1<<20)
	if c.name == "window" {
		p, ok = plan.RowsOf(&c.filter, r, plan.Page{Top: true}, planLimit, 1<<20)
	}
	require.True(t, ok)
	return p
}

// explain runs a plan under EXPLAIN ANALYZE on a connection of the store, as the generic plan of a prepared
// statement, which is what the service executes. It returns for each index of a partition the index that it
// belongs to. Without tuned, the planner has its default settings.
func (s *Store) explain(t *testing.T, p plan.Plan, tuned bool) (tree node, parents map[string]string) {
	t.Helper()
	args := make([]string, len(p.Args))
	for i, a := range p.Args {
		args[i] = literal(t, a)
	}
	require.NoError(t, s.read(t.Context(), func(ctx context.Context, conn *pgx.Conn, _ session) error {
		exec := func(sql string) error {
			_, err := conn.Exec(ctx, sql)
			return err
		}
		if !tuned {
			if err := exec("SET enable_seqscan = on; SET enable_bitmapscan = on; SET enable_hashjoin = on; SET enable_mergejoin = on; SET enable_memoize = on"); err != nil {
				return err
			}
			delete(conn.PgConn().CustomData(), sessionKey)
		}
		if searches(&p) { // as inSnapshot does
			if err := exec("SET enable_bitmapscan = on"); err != nil {
				return err
			}
			delete(conn.PgConn().CustomData(), sessionKey)
		}
		if err := exec("PREPARE explained AS " + p.SQL); err != nil {
			return err
		}
		var text []byte
		err := conn.QueryRow(ctx, "EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF, FORMAT JSON) EXECUTE explained("+strings.Join(args, ", ")+")",
			pgx.QueryExecModeSimpleProtocol).Scan(&text)
		if err != nil {
			return err
		}
		if err := exec("DEALLOCATE explained"); err != nil {
			return err
		}
		var out []struct{ Plan node }
		if err := json.Unmarshal(text, &out); err != nil {
			return err
		}
		tree, parents = out[0].Plan, map[string]string{}
		rows, err := conn.Query(ctx, `SELECT c.relname::text, p.relname::text FROM pg_inherits i
			JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent`, pgx.QueryExecModeExec)
		if err != nil {
			return err
		}
		var child, parent string
		_, err = pgx.ForEachRow(rows, []any{&child, &parent}, func() error {
			parents[child] = parent
			return nil
		})
		return err
	}))
	return tree, parents
}

// literal writes an argument as SQL.
func literal(t *testing.T, arg any) string {
	t.Helper()
	list := func(typ string, n int, item func(i int) string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = item(i)
		}
		return "ARRAY[" + strings.Join(items, ", ") + "]::" + typ + "[]"
	}
	bytes := func(b []byte) string { return fmt.Sprintf("'\\x%x'::bytea", b) }
	switch a := arg.(type) {
	case int64:
		return fmt.Sprintf("'%d'::bigint", a)
	case string:
		return "'" + a + "'"
	case []byte:
		return bytes(a)
	case [][]byte:
		if a == nil {
			return "NULL"
		}
		return list("bytea", len(a), func(i int) string { return bytes(a[i]) })
	case []int32:
		if a == nil {
			return "NULL"
		}
		return list("int", len(a), func(i int) string { return strconv.Itoa(int(a[i])) })
	case []string:
		return list("text", len(a), func(i int) string { return "'" + a[i] + "'" })
	}
	require.Failf(t, "unknown argument", "%T", arg)
	return ""
}

// numbered is what tells one use of an alias from another.
var numbered = regexp.MustCompile(`_[0-9]+\.`)

// normalise renders the tree without what differs between partitions and versions.
func (n *node) normalise(parents map[string]string) string {
	var b strings.Builder
	n.render(&b, parents, 0)
	return b.String()
}

func (n *node) render(b *strings.Builder, parents map[string]string, depth int) {
	base := func(name string) string {
		if p, ok := parents[name]; ok {
			return p
		}
		return name
	}
	b.WriteString(strings.Repeat("  ", depth))
	if n.Parent == "SubPlan" || n.Parent == "InitPlan" {
		b.WriteString(n.Parent + ": ")
	}
	b.WriteString(strings.Replace(n.Type, "Index Only Scan", "Index Scan", 1)) // depends on vacuum
	if n.Relation != "" {
		fmt.Fprintf(b, " on %s", base(n.Relation))
	}
	if n.Index != "" {
		fmt.Fprintf(b, " using %s", base(n.Index))
	}
	if len(n.SortKey) > 0 {
		fmt.Fprintf(b, " by %s", numbered.ReplaceAllString(strings.Join(n.SortKey, ", "), "."))
	}
	b.WriteString("\n")
	var last string
	for i := range n.Plans {
		var sub strings.Builder
		n.Plans[i].render(&sub, parents, depth+1)
		if sub.String() != last { // partitions are alike
			b.WriteString(sub.String())
		}
		last = sub.String()
	}
}

// read sums the rows that scans of the event tables gave or threw away.
func (n *node) read(parents map[string]string) float64 {
	sum := 0.0
	if slices.Contains([]string{"events", "event_tags", "event_ids", "addresses", "documents", "replies"}, cmp.Or(parents[n.Relation], n.Relation)) {
		sum = (n.Rows + n.Removed) * n.Loops
	}
	for i := range n.Plans {
		sum += n.Plans[i].read(parents)
	}
	return sum
}

// keys are columns of a table's index that every statement has values for. As a filter they would mean that all
// rows with the columns before them are read.
var keys = map[string]string{"event_tags": "value", "replies": "root_id", "community_members": "pubkey", "banned_pubkeys": "pubkey"}

// filteredKeys lists the filters on such columns.
func (n *node) filteredKeys(parents map[string]string) []string {
	var list []string
	if column := keys[cmp.Or(parents[n.Relation], n.Relation)]; column != "" && strings.Contains(n.Filter, column+" ") {
		list = append(list, n.Relation+": "+n.Filter)
	}
	for i := range n.Plans {
		list = append(list, n.Plans[i].filteredKeys(parents)...)
	}
	return list
}

// scanned lists how the large tables were read: monthly partitions and event_ids.
func (n *node) scanned() []string {
	var list []string
	if strings.HasPrefix(n.Relation, "event") && !strings.HasSuffix(n.Relation, "_default") {
		list = append(list, n.Type)
	}
	for i := range n.Plans {
		list = append(list, n.Plans[i].scanned()...)
	}
	return list
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "plans", name+".txt")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "the plan changed; if it is as good, run the test with -update")
}
