package ingest_test

import (
	"bufio"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// TestOKWaitsForTheDisk runs on a database that by default answers commits before they are on the disk.
func TestOKWaitsForTheDisk(t *testing.T) {
	h := newHarness(t)
	_, err := h.admin.Exec(t.Context(), `ALTER DATABASE `+pgx.Identifier{h.admin.Config().ConnConfig.Database}.Sanitize()+` SET synchronous_commit = off`)
	require.NoError(t, err)
	_, err = h.admin.Exec(t.Context(), `
CREATE TABLE how (setting text); GRANT ALL ON how TO apiary_ingest; GRANT USAGE ON SCHEMA public TO apiary_ingest;
CREATE FUNCTION note_how() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO public.how VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
CREATE TRIGGER note_how AFTER INSERT ON ingest.outbox FOR EACH ROW EXECUTE FUNCTION note_how();
CREATE TRIGGER note_how AFTER INSERT ON ingest.community_hosts FOR EACH ROW EXECUTE FUNCTION note_how()`)
	require.NoError(t, err)
	r := h.start("one")
	h.open(r).accept(notes(t, h.community(r, "one.example", open), "alice", "note ", 3)...)
	require.Equal(t, 4, h.count(`SELECT count(*) FROM how WHERE setting = 'on'`))
	require.Equal(t, 4, h.count(`SELECT count(*) FROM how`))
}

// TestAServerThatForgetsIsSaid starts on a server that may or may not flush its files, as it happens.
func TestAServerThatForgetsIsSaid(t *testing.T) {
	h := newHarness(t)
	unsafe := h.count(`SELECT count(*) FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'`)
	lines, log := io.Pipe()
	r := h.start("one", func(o *options) { o.log = slog.New(slog.NewTextHandler(log, nil)) })
	if unsafe > 0 {
		said := bufio.NewScanner(lines)
		for said.Scan() && !strings.Contains(said.Text(), "may lose acknowledged events") {
		}
		require.Regexp(t, `level=WARN .*settings_off="?\[f.*\]`, said.Text())
	}
	require.NoError(t, lines.Close()) // what is written from now on goes nowhere
	require.NoError(t, r.stop(false))
}
