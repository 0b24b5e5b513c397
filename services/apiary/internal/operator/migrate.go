package operator

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/apiary-relay/apiary/pkg/postgres"
)

// MigrateUp brings the database at url up to date and says from where to where.
func MigrateUp(ctx context.Context, url string, out io.Writer) error {
	before, err := postgres.Migrations(ctx, url)
	if err != nil {
		return err
	}
	if err := postgres.Migrate(ctx, url); err != nil {
		return err
	}
	pending := 0
	for _, m := range before {
		if !m.Applied {
			pending++
			if _, err := fmt.Fprintf(out, "applied %s\n", m.Name); err != nil {
				return err
			}
		}
	}
	if pending == 0 {
		_, err = fmt.Fprintln(out, "the schema is up to date")
	}
	return err
}

// MigrateStatus lists the migrations.
func MigrateStatus(ctx context.Context, url string, out io.Writer) error {
	migrations, err := postgres.Migrations(ctx, url)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, m := range migrations {
		state := "pending"
		if m.Applied {
			state = "applied"
		}
		if _, err := fmt.Fprintf(table, "%d\t%s\t%s\n", m.Version, state, m.Name); err != nil {
			return err
		}
	}
	return table.Flush()
}
