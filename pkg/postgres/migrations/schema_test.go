package migrations_test

import (
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/postgres/migrations"
	"github.com/apiary-relay/apiary/pkg/postgres/private"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
)

var update = flag.Bool("update", false, "write the golden file")

const golden = "schema.golden.sql"

const goldenHead = `-- What all migrations together make, for reviewers: pg_dump --schema-only without comments and settings.
-- Written by: go test ./pkg/postgres/migrations -update (through tools/pgtmp)

`

func TestSchemaIsAsReviewed(t *testing.T) {
	t.Parallel()
	got := goldenHead + dump(t, pgtest.URL(t))
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "if the change is meant, run the test with -update")
}

// dump returns the schema without what depends on the version of pg_dump or on the machine.
func dump(t *testing.T, url string) string {
	t.Helper()
	installed, err := private.Find(t.Context())
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), installed[0].Command("pg_dump"), "--schema-only", "--no-owner", "--dbname", url).Output()
	require.NoError(t, err)
	var b strings.Builder
	blank := true
	for line := range strings.Lines(string(out)) {
		switch {
		case strings.HasPrefix(line, "--"), strings.HasPrefix(line, "SET "), strings.HasPrefix(line, "SELECT pg_catalog.set_config"),
			strings.HasPrefix(line, `\`): // \restrict has a random word
			continue
		case strings.TrimSpace(line) == "":
			if !blank {
				b.WriteString("\n")
			}
			blank = true
		default:
			b.WriteString(line)
			blank = false
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func TestHashAndLatest(t *testing.T) {
	t.Parallel()
	hash, err := migrations.Hash()
	require.NoError(t, err)
	require.Len(t, hash, 16)
	latest, err := migrations.Latest()
	require.NoError(t, err)
	require.GreaterOrEqual(t, latest, int64(3))
	require.NoError(t, fstest.TestFS(migrations.FS(), "00001_roles.sql"))
}
