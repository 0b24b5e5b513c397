package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
)

// startPatience bounds the start of a process: Postgres makes its files first, on a machine that may be
// busy with other tests.
const startPatience = 3 * time.Minute

// home is a directory that an unprivileged Postgres may enter, with the program in it.
func home(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "apiary-serve-") //nolint:usetesting // only the owner may enter what t.TempDir makes
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o711))
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(dir, "apiary")))
	return dir
}

// command prepares apiary with its own home, no settings in its environment and no database.
func command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "apiary"), args...)
	cmd.Dir = dir
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if name != "DATABASE_URL" && !strings.HasPrefix(name, "APIARY_") && !strings.HasPrefix(name, "XDG_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, "HOME="+dir)
	return cmd
}

// apiary runs a command to its end and returns what it printed and its exit code.
func apiary(t *testing.T, dir string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, err bytes.Buffer
	cmd := command(t.Context(), dir, args...)
	cmd.Stdout, cmd.Stderr = &out, &err
	if failed := cmd.Run(); failed != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, failed, &exit)
	}
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

// server is a running apiary serve.
type server struct {
	t       *testing.T
	cmd     *exec.Cmd
	welcome string // what it printed until it was ready
	url     string
	stderr  bytes.Buffer
	output  sync.WaitGroup
}

var readyLine = regexp.MustCompile(`^ready +(ws://localhost:\d+)$`)

// serve starts apiary serve and waits until it says that it is ready. settings are further arguments.
func serve(t *testing.T, dir string, settings ...string) *server {
	t.Helper()
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--admin.listen", "127.0.0.1:0", "--data", "data"}, settings...)
	s := &server{t: t, cmd: command(context.WithoutCancel(t.Context()), dir, args...)}
	stdout, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	s.cmd.Stderr = &s.stderr
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			s.kill()
		}
	})

	ready := make(chan struct{})
	s.output.Go(func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() && s.url == "" {
			s.welcome += lines.Text() + "\n"
			if match := readyLine.FindStringSubmatch(lines.Text()); match != nil {
				s.url = match[1]
			}
		}
		close(ready)
		_, _ = io.Copy(io.Discard, stdout) // ends with the process
	})
	select {
	case <-ready:
	case <-time.After(startPatience):
		require.FailNow(t, "serve is not ready", s.welcome)
	}
	if s.url == "" {
		s.output.Wait()
		err := s.cmd.Wait()
		require.FailNow(t, "serve ended", "%v\n%s%s", err, s.welcome, s.stderr.String())
	}
	return s
}

// stop does what Ctrl-C does, and requires a clean end in time.
func (s *server) stop() {
	s.t.Helper()
	began := time.Now()
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGINT))
	s.output.Wait()
	require.NoError(s.t, s.cmd.Wait(), s.stderr.String())
	require.Less(s.t, time.Since(began), 10*time.Second)
	require.Empty(s.t, s.stderr.String(), "nothing needed attention")
}

// kill ends the process as a crash would.
func (s *server) kill() {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Kill())
	s.output.Wait()
	require.Error(s.t, s.cmd.Wait())
}

func TestServe(t *testing.T) {
	dir := home(t)
	first := serve(t, dir)
	require.Contains(t, first.welcome, "made the relay key")
	require.Contains(t, first.welcome, "made the operator key")
	require.Contains(t, first.welcome, "community set localhost --access closed")
	require.Regexp(t, `admin on http://127\.0\.0\.1:[1-9]\d*\n`, first.welcome, "the real port")
	for _, name := range []string{"relay.key", "operator.key"} {
		info, err := os.Stat(filepath.Join(dir, "data", name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}

	_, _, code := apiary(t, dir, "healthcheck", "--data", "data")
	require.Zero(t, code)
	_, stderr, code := apiary(t, dir, "serve", "--data", "data", "--listen", "127.0.0.1:0")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "in use by process "+strconv.Itoa(first.cmd.Process.Pid))

	_, stderr, code = apiary(t, dir, "serve", "--data", "other", "--listen", strings.TrimPrefix(first.url, "ws://"))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "another program listens on localhost:")
	require.NoDirExists(t, filepath.Join(dir, "other"), "a start that is refused leaves nothing behind")

	id, stderr, code := apiary(t, dir, "client", "publish", "--relay", first.url, "hello, hive")
	require.Zero(t, code, stderr)
	require.Regexp(t, "^[0-9a-f]{64}\n$", id)
	stored(t, dir, first.url)
	pong, stderr, code := apiary(t, dir, "client", "ping", "--relay", first.url)
	require.Zero(t, code, stderr)
	require.Regexp(t, `^sent and received: OK after \S+, delivered after \S+\n$`, pong)
	_, stderr, code = apiary(t, dir, "client", "ping", "--relay", "ws://nobody.example", "--connect", strings.TrimPrefix(first.url, "ws://"), "--timeout", "5s")
	require.Equal(t, 1, code, "a host without a community")
	require.Contains(t, stderr, "no relay for this host")
	closeCommunity(t, dir, first.url)
	first.stop()
	_, stderr, code = apiary(t, dir, "healthcheck", "--data", "data")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no apiary serve runs")

	second := serve(t, dir, "--ingest.join-terms", "Be kind.", "--ingest.join-age-attestation",
		"--gateway.operator-hosts", "operator.example", "--gateway.operator-keys", publicKey(t, dir))
	require.NotContains(t, second.welcome, "made the", "keys and community are there already")
	requireTerms(t, second.url, "Be kind.")
	operate(t, dir, second.url)
	joinByPolicy(t, dir, second.url)
	stored(t, dir, second.url)
	second.stop()

	third := serve(t, dir)
	stored(t, dir, third.url)
	third.kill()

	fourth := serve(t, dir)
	stored(t, dir, fourth.url)
	fourth.stop()
}

func TestTwoOnOneDatabase(t *testing.T) {
	dir, database := home(t), "--postgres.url="+pgtest.URL(t)
	first := serve(t, dir, database)
	_, stderr, code := apiary(t, dir, "serve", "--data", "other", "--listen", "127.0.0.1:0", database)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "another apiary serve (process "+strconv.Itoa(first.cmd.Process.Pid)+" on ")
	require.Contains(t, stderr, "uses this database")
	require.NoDirExists(t, filepath.Join(dir, "other"))
	first.kill()
	serve(t, dir, database, "--log.level=error").stop() // a throw-away Postgres deserves the warning that it is one
}

// stored requires that the first event can be read.
func stored(t *testing.T, dir, url string) {
	t.Helper()
	stdout, stderr, code := apiary(t, dir, "client", "query", "--relay", url)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "hello, hive")
}

// requireTerms requires that whoever joins is asked to accept these.
func requireTerms(t *testing.T, url, terms string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http"+strings.TrimPrefix(url, "ws")+"/api/join-policy", http.NoBody)
	require.NoError(t, err)
	response, err := (&http.Client{Timeout: time.Minute}).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Contains(t, string(body), terms)
}

// operate makes the community team.example by the operators' API, with the header that the client makes for curl.
func operate(t *testing.T, dir, url string) {
	t.Helper()
	body := `{"host":"team.example","initial_owner_pubkey":"` + publicKey(t, dir) + `"}`
	header, stderr, code := apiary(t, dir, "client", "authorize", "http://operator.example/operator/communities", "--data", body)
	require.Zero(t, code, stderr)
	name, value, found := strings.Cut(strings.TrimSpace(header), ": ")
	require.True(t, found, header)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http"+strings.TrimPrefix(url, "ws")+"/operator/communities", strings.NewReader(body))
	require.NoError(t, err)
	request.Host = "operator.example"
	request.Header.Set(name, value)
	response, err := (&http.Client{Timeout: time.Minute}).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, string(answer))
	require.Contains(t, string(answer), `"host":"team.example","status":"created"`)
}

var acceptLine = regexp.MustCompile(`(?m)^Who has read that and accepts it adds: (--accept-policy [0-9a-f]+ --confirm-age)$`)

// joinByPolicy has keys join team.example, which first say nothing to the policy, then something else, and then what they
// were told to.
func joinByPolicy(t *testing.T, dir, url string) {
	t.Helper()
	for _, scheme := range []string{"ws", "http"} {
		where := []string{"--relay", scheme + "://team.example", "--connect", strings.TrimPrefix(url, "ws://")}
		invite, stderr, code := apiary(t, dir, append([]string{"client", "invite", "--uses", "1", "--for", "1h"}, where...)...)
		require.Zero(t, code, stderr)
		join := func(name string, flags ...string) (stdout, stderr string, code int) {
			args := append([]string{"client", "join", strings.TrimSpace(invite), "--key", scheme + "-" + name + ".key"}, where...)
			return apiary(t, dir, append(args, flags...)...)
		}
		_, stderr, code = join("bob")
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "apiary: the relay has a policy that whoever joins accepts first\n    terms    http://team.example/terms\n    age ")
		told := acceptLine.FindStringSubmatch(stderr)
		require.NotNil(t, told, stderr)
		_, stderr, code = join("bob", "--accept-policy", "0000", "--confirm-age")
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "another one now than the one that was accepted")
		stdout, stderr, code := join("bob", strings.Fields(told[1])...)
		require.Zero(t, code, stderr)
		require.Equal(t, "joined "+scheme+"://team.example\n", stdout)
		_, stderr, code = join("carol", strings.Fields(told[1])...)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "restricted: ", "one use was asked for")
	}
}

// closeCommunity closes the community to members, of whom the client's own key is one.
func closeCommunity(t *testing.T, dir, url string) {
	t.Helper()
	_, notes, _ := apiary(t, dir, "client", "query", "--relay", url, "--key", "other.key")
	require.Contains(t, notes, "made a new key: other.key")
	member := publicKey(t, dir)
	for _, args := range [][]string{
		{"community", "member-add", "--data", "data", "localhost", member},
		{"community", "set", "--data", "data", "localhost", "--access", "closed"},
	} {
		_, stderr, code := apiary(t, dir, args...)
		require.Zero(t, code, stderr)
	}
	stdout, stderr, code := apiary(t, dir, "community", "list", "--data", "data")
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?m)^localhost +closed +active +2 +20\d\d-\d\d-\d\d \d\d:\d\d +localhost$`, stdout)
	stdout, stderr, code = apiary(t, dir, "community", "members", "--data", "data", "--json", "localhost")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, `{"pubkey":"`+member+`","role":"member","since":"20`)
	require.Contains(t, stdout, `"role":"owner"`)
	_, stderr, code = apiary(t, dir, "client", "publish", "--relay", url, "--key", "other.key", "let me in")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "restricted")
	_, stderr, code = apiary(t, dir, "client", "publish", "--relay", url, "a member's")
	require.Zero(t, code, stderr)
}

// publicKey returns the client's own.
func publicKey(t *testing.T, dir string) string {
	t.Helper()
	stdout, stderr, code := apiary(t, dir, "client", "whoami")
	require.Zero(t, code, stderr)
	key, _, _ := strings.Cut(stdout, "\n")
	return key
}
