// Command walk runs the commands of a page and compares what they print with what the page shows:
//
//	walk --bin bin services/docs/walkthrough.md
//
// Fenced blocks of the language console are what somebody types at a terminal: lines that begin with "$ " are
// commands, those after them that begin with "> " go on with one, and all others are what comes out, both streams
// together. The blocks run in the order of the page.
//
//   - A block that has a word after the language is at another terminal, of that name, and its last command may go on
//     after the block: what it prints later is in blocks further down, which need no command.
//   - <name> in what is shown stands for some characters, without blanks: the same ones wherever it stands; <name:8>
//     for the first eight of them. <time> is a time of day, a different one each time, and with its date if
//     that is yesterday's. A line "..." is any number of lines.
//   - A command fails if, and only if, a line of what it prints begins with "apiary: ".
//   - localhost:3000 is replaced by an address that is free. Each run has a directory of its own, which is the home
//     and the working directory of the terminals, and for all that apiary serve keeps.
//   - Blocks with curl are passed over on machines without it.
//
// The commands are for bash, as they are for a person who tries the page: that is why this is no test script with a
// language of its own. When the page is at its end, whatever still runs is stopped as by Ctrl-C, and has to end well.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Environ(), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "walk:", err)
		os.Exit(1)
	}
}

// run walks through a page and says on stdout how it went.
func run(ctx context.Context, args, environ []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("walk", flag.ContinueOnError)
	bin := flags.String("bin", "bin", "directory of the programs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("usage: walk [--bin bin] PAGE")
	}
	text, err := os.ReadFile(flags.Arg(0))
	if err != nil {
		return err
	}
	programs, err := filepath.Abs(*bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "apiary-walk-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// Postgres refuses root and runs as another user, who has to reach its directory.
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // what is private inside has modes of its own
		return err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	blocks, err := parse(strings.ReplaceAll(string(text), usualAddress, address))
	if err != nil {
		return fmt.Errorf("%s:%w", flags.Arg(0), err)
	}

	began := time.Now()
	w := &walk{dir: dir, environ: environment(environ, programs, dir, address), names: names{}, terminals: map[string]*terminal{}}
	count, err := w.blocks(ctx, blocks, stdout)
	if err = errors.Join(err, w.end(ctx)); err != nil {
		return fmt.Errorf("%s:%w", flags.Arg(0), err)
	}
	fmt.Fprintf(stdout, "%s: %d commands print what it shows, in %s\n", flags.Arg(0), count, time.Since(began).Round(100*time.Millisecond))
	return nil
}

// usualAddress is what the page has where each run has another one.
const usualAddress = "localhost:3000"

// freeAddress finds a loopback port that nobody listens on.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return "localhost:" + port, err
}

// environment is that of the terminals: nothing of the user's own settings.
func environment(environ []string, programs, dir, address string) []string {
	var env []string
	path := ""
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case name == "PATH":
			path = value
		case name == "HOME" || name == "DATABASE_URL" || strings.HasPrefix(name, "APIARY_") || strings.HasPrefix(name, "XDG_"):
		default:
			env = append(env, variable)
		}
	}
	return append(env, "PATH="+programs+string(filepath.ListSeparator)+path, "HOME="+dir,
		"APIARY_DATA="+filepath.Join(dir, "data"), "APIARY_LISTEN="+strings.Replace(address, "localhost", "127.0.0.1", 1),
		"APIARY_ADMIN_LISTEN=127.0.0.1:0")
}

// walk is one run through a page.
type walk struct {
	dir       string
	environ   []string
	names     names
	terminals map[string]*terminal
	opened    []*terminal // in order
}

// blocks runs them all and returns how many commands that were.
func (w *walk) blocks(ctx context.Context, blocks []block, stdout io.Writer) (count int, err error) {
	_, noCurl := exec.LookPath("curl")
	for _, b := range blocks {
		if b.uses("curl") && noCurl != nil {
			fmt.Fprintf(stdout, "line %d: passed over, for there is no curl here\n", b.line)
			continue
		}
		t, err := w.terminal(b.terminal)
		if err != nil {
			return count, fmt.Errorf("%d: %w", b.line, err)
		}
		for i, step := range b.steps {
			goesOn := b.terminal != "" && i == len(b.steps)-1
			if err := t.step(ctx, step, w.names, goesOn); err != nil {
				return count, fmt.Errorf("%d: %w", step.line, err)
			}
			if step.command != "" {
				count++
			}
		}
	}
	return count, nil
}

// terminal returns the one of this name, opened when it is first used.
func (w *walk) terminal(name string) (*terminal, error) {
	if t := w.terminals[name]; t != nil {
		return t, nil
	}
	t, err := openTerminal(name, w.dir, w.environ)
	if err != nil {
		return nil, err
	}
	w.terminals[name] = t
	w.opened = append(w.opened, t)
	return t, nil
}

// end closes the terminals, the last one first: what the first one runs may be what the others talk to.
func (w *walk) end(ctx context.Context) (err error) {
	for i := len(w.opened) - 1; i >= 0; i-- {
		err = errors.Join(err, w.opened[i].close(context.WithoutCancel(ctx)))
	}
	return err
}
