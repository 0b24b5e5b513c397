package serve

import (
	"context"
	"log/slog"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
)

// messages is a log handler that passes on what is logged.
type messages struct {
	slog.Handler
	to chan string
}

func (m messages) Enabled(context.Context, slog.Level) bool { return true }

func (m messages) Handle(_ context.Context, r slog.Record) error {
	m.to <- r.Message
	return nil
}

// take claims the database and watches over it; what it logs and how the watching ends come in the channels.
func take(t *testing.T, url string) (c *claim, logged chan string, ended chan error) {
	t.Helper()
	logged, ended = make(chan string, 100), make(chan error, 1)
	c, err := takeClaim(t.Context(), config.NewSecret(url), slog.New(messages{slog.DiscardHandler, logged}))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- c.watch(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
		require.NoError(t, c.close(context.WithoutCancel(t.Context())))
	})
	return c, logged, ended
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) })
	return conn
}

func TestADatabaseIsClaimedByOne(t *testing.T) {
	url := config.NewSecret(pgtest.Empty(t))
	log := slog.New(slog.DiscardHandler)
	first, err := takeClaim(t.Context(), url, log)
	require.NoError(t, err)

	_, err = takeClaim(t.Context(), url, log)
	var claimed *claimedError
	require.ErrorAs(t, err, &claimed)
	require.Regexp(t, `^another apiary serve \(process \d+ on \S+, since 20\S+Z\) uses this database: `, err.Error())
	require.ErrorContains(t, err, "Stop that one, give this one another database")
	require.Equal(t, first.session, claimed.session)

	require.NoError(t, first.close(t.Context()))
	second, err := takeClaim(t.Context(), url, log)
	require.NoError(t, err)
	require.NoError(t, second.close(t.Context()))
}

func TestALostClaimIsTakenAgain(t *testing.T) {
	url := pgtest.Empty(t)
	_, logged, _ := take(t, url)
	_, err := connect(t, url).Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'`)
	require.NoError(t, err)
	require.Equal(t, "claim on the database lost, trying to get it again", <-logged)
	next := <-logged
	for next == "database not claimed yet" { // the server may take a moment to let go
		next = <-logged
	}
	require.Equal(t, "database claimed again", next)

	_, err = takeClaim(t.Context(), config.NewSecret(url), slog.New(slog.DiscardHandler))
	require.ErrorAs(t, err, new(*claimedError))
}

func TestAClaimThatTheServerStillBelievesInIsReplaced(t *testing.T) {
	url := pgtest.Empty(t)
	c, err := takeClaim(t.Context(), config.NewSecret(url), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	cut := c.conn // from here on as if the network had swallowed it
	c.conn = connect(t, url)
	before := c.session
	require.NoError(t, c.again(t.Context()))
	require.NotEqual(t, before, c.session)
	require.Error(t, cut.Ping(t.Context()), "it was ended")
	require.NoError(t, c.close(t.Context()))
}

func TestAClaimThatAnotherHasTakenEndsTheWatching(t *testing.T) {
	url := pgtest.Empty(t)
	c, _, ended := take(t, url)
	other := connect(t, url)
	waiting := make(chan error, 1)
	go func() {
		_, err := other.Exec(t.Context(), `SELECT pg_advisory_lock(`+strconv.Itoa(claimKey)+`)`)
		waiting <- err
	}()
	admin := connect(t, url)
	for queued := false; !queued; { // who waits in the queue gets it before anybody who comes later
		require.NoError(t, admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)`).Scan(&queued))
	}
	_, err := admin.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, c.session.pid)
	require.NoError(t, err)
	require.NoError(t, <-waiting)
	require.ErrorAs(t, <-ended, new(*claimedError))
}
