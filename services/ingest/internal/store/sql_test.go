package store

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
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

// TestPlans checks that no hot statement reads a table from end to end, however large it is.
func TestPlans(t *testing.T) {
	f := newFixture(t)
	for name, args := range map[string]string{
		"sqlMembers":            `ARRAY[1]::bigint[], ARRAY['\x01']::bytea[]`,
		"sqlChannels":           `ARRAY[1]::bigint[], ARRAY['a']::text[]`,
		"sqlChannelMembers":     `ARRAY[1]::bigint[], ARRAY['a']::text[], ARRAY['\x01']::bytea[]`,
		"sqlTombstones":         `ARRAY[1]::bigint[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[]`,
		"sqlAddressTombstones":  `ARRAY[1]::bigint[], ARRAY[1]::integer[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[], ARRAY[1]::bigint[]`,
		"sqlLockAddresses":      `ARRAY[1]::bigint[], ARRAY[1]::integer[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[]`,
		"sqlVersions":           `ARRAY[1]::bigint[], ARRAY[1]::integer[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[]`,
		"sqlTargets":            `ARRAY[1]::bigint[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[], 1`,
		"sqlTargetVersions":     `ARRAY[1]::bigint[], ARRAY[1]::integer[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[], 1, 1`,
		"sqlEraseEvents":        `ARRAY[1]::bigint[], ARRAY[1]::bigint[], ARRAY['\x01']::bytea[]`,
		"sqlEraseIDs":           `ARRAY[1]::bigint[], ARRAY['\x01']::bytea[]`,
		"sqlEraseTags":          `ARRAY[1]::bigint[], ARRAY['e']::text[], ARRAY['\x01']::bytea[], ARRAY[1]::bigint[], ARRAY['\x01']::bytea[]`,
		"sqlEraseAddresses":     `ARRAY[1]::bigint[], ARRAY[1]::integer[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[]`,
		"sqlReadTargets":        `ARRAY[1]::bigint[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[]`,
		"sqlThreads":            `ARRAY[1]::bigint[], ARRAY['\x01']::bytea[], 1`,
		"sqlMade":               `1, '\x01'::bytea, ARRAY['stream'], 1, 1`,
		"sqlEraseReplies":       `ARRAY[1]::bigint[], ARRAY['\x01']::bytea[], 1`,
		"sqlEraseReplyCounts":   `ARRAY[1]::bigint[], ARRAY['\x01']::bytea[]`,
		"sqlLockWithTargets":    `ARRAY[1]::bigint[], ARRAY[true], ARRAY[1]::bigint[], ARRAY['\x01']::bytea[]`,
		"sqlDeletedFrom":        `1, '\x01'::bytea, ARRAY['\x01']::bytea[], ARRAY[1]::integer[], ARRAY['\x01']::bytea[]`,
		"sqlEraseReactions":     `ARRAY[1]::bigint[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[]`,
		"sqlMoveAddresses":      `ARRAY[1]::bigint[], ARRAY[1]::integer[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[], ARRAY[1]::bigint[], ARRAY['\x01']::bytea[]`,
		"sqlDeleteRows":         `ARRAY[1]::bigint[]`,
		"sqlRefusedKinds":       `ARRAY[1]::bigint[], ARRAY[1]::integer[]`,
		"sqlBannedPubKeys":      `ARRAY[1]::bigint[], ARRAY['\x01']::bytea[]`,
		"sqlBannedEvents":       `ARRAY[1]::bigint[], ARRAY['\x01']::bytea[]`,
		"sqlVanished":           `ARRAY[1]::bigint[], ARRAY['\x01']::bytea[], ARRAY[1]::bigint[]`,
		"sqlHosts":              `ARRAY['a']::text[]`,
		"sqlVanishingEvents":    `1, '\x01'::bytea, 1, 1`,
		"sqlVanishingWraps":     `1, '\x01'::bytea, 1, 1`,
		"sqlEvent":              `1, '\x01'::bytea`,
		"sqlForget":             `now(), 1`,
		"sqlForgetCommands":     `now(), 1`,
		"sqlForgetActions":      `now(), 1, 1`,
		"sqlForgetInvites":      `now(), 1`,
		"sqlProcessed":          `ARRAY[1]::bigint[], ARRAY['\x01']::bytea[]`,
		"sqlSignedVersions":     `ARRAY[1]::bigint[], ARRAY[1]::integer[], ARRAY['\x01']::bytea[], ARRAY['\x01']::bytea[]`,
		"sqlClaim":              `1, '\x01'::bytea, '\x02'::bytea`,
		"sqlReferenced":         `ARRAY[1]::bigint[], ARRAY['a']::text[], ARRAY['\x01']::bytea[], ARRAY['\x02']::bytea[], ARRAY[4]::integer[]`,
		"sqlChannelInvite":      `1, 1, '\x01'::bytea`,
		"sqlChannelEvent":       `1, '\x01'::bytea, 1, '\x02'::bytea`,
		"sqlChannelEvents":      `1, 1, 1`,
		"sqlLastWritten":        `1, 1`,
		"sqlStanding":           `1, 1, '\x01'::bytea, '\x02'::bytea`,
		"sqlLeaveChannels":      `1, ARRAY['\x01']::bytea[], 1`,
		"sqlChannelMembersDue":  `1`,
		"sqlRostersDue":         `1`,
		"sqlConversation":       `1, '\x01'::bytea`,
		"sqlHideConversation":   `1, 'a', '\x01'::bytea, true`,
		"sqlHidden":             `1, '\x01'::bytea, 1`,
		"sqlForgetHidden":       `1, '\x01'::bytea, 1`,
		"sqlRemindCommunities":  `1, 1`,
		"sqlDueReminders":       `1, 1, 1, 1, 1`,
		"sqlCancelReminders":    `ARRAY[1]::bigint[], ARRAY[1]::bigint[], ARRAY['\x01']::bytea[]`,
		"sqlTimedOut":           `ARRAY[1]::bigint[], ARRAY['\x01']::bytea[]`,
		"sqlOwners":             `ARRAY[1]::bigint[], ARRAY['\x01']::bytea[]`,
		"sqlNewcomer":           `1, '\x01'::bytea`,
		"sqlAgency":             `1, '\x01'::bytea, '\x02'::bytea, now(), 1`,
		"sqlAgentsOf":           `1, '\x01'::bytea`,
		"sqlEndedAttestations":  `1`,
		"sqlEndAttestations":    `1, 1`,
		"sqlChannelsDue":        `1`,
		"sqlChannelsQuiet":      `now(), 1`,
		"sqlDeletedChannels":    `now()`,
		"sqlOldRows":            `1, 1, 1`,
		"sqlExpiredCommunities": `1, 1`,
		"sqlExpired":            `1, 1, 1`,
	} {
		text, ok := statements(t)[name]
		require.True(t, ok, name)
		f.requireNoSeqScan(name, text, args)
	}
}

// requireNoSeqScan explains the statement as the planner has it once tables have grown: without sequential
// scans where there is another way.
func (f *fixture) requireNoSeqScan(name, text, args string) {
	f.t.Helper()
	tx, err := f.admin.Begin(f.t.Context())
	require.NoError(f.t, err)
	defer tx.Rollback(context.WithoutCancel(f.t.Context()))
	_, err = tx.Exec(f.t.Context(), `SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = force_generic_plan`)
	require.NoError(f.t, err)
	_, err = tx.Exec(f.t.Context(), "PREPARE p AS "+text)
	require.NoError(f.t, err, name)
	rows, err := tx.Query(f.t.Context(), "EXPLAIN EXECUTE p("+args+")", pgx.QueryExecModeSimpleProtocol)
	require.NoError(f.t, err, name)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(f.t, err, name)
	for _, line := range plan {
		require.NotContains(f.t, line, "Seq Scan", "%s: %s", name, line)
	}
	_, err = tx.Exec(f.t.Context(), "DEALLOCATE p") // outlives the transaction otherwise
	require.NoError(f.t, err)
}
