package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// patience bounds a command, and the wait for each line of one that goes on: a first start makes a database.
	patience = time.Minute
	// endPatience bounds how long what was stopped may take to end.
	endPatience = 30 * time.Second
	// mark is before the exit code that is printed after a command.
	mark = "\x1e"
	// failure begins the line in which our programs say what went wrong.
	failure = "apiary: "
)

var errShellEnded = errors.New("the shell has ended")

// loop is what a terminal's shell does: it takes commands from a descriptor that they do not see.
const loop = `exec 2>&1
while IFS= read -r -d '' -u 3 command; do
	eval "$command" 3<&- </dev/null
	printf '\x1e%d\n' "$?"
done`

// terminal is a shell, and what its commands have printed and nobody has looked at. One goroutine reads; everything
// else is the caller's.
type terminal struct {
	name     string
	shell    *exec.Cmd
	commands *os.File
	lines    chan string // closed at the end of the shell
	running  string      // the command whose end was not read yet
	failed   bool        // it has said what went wrong
	loose    bool        // what comes after the last block does not matter
}

func openTerminal(name, dir string, environ []string) (*terminal, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	// Not CommandContext: it is stopped by close, so that what runs in it can clean up.
	shell := exec.Command("bash", "--noprofile", "--norc", "-c", loop) //nolint:noctx // see above
	shell.Dir, shell.Env, shell.ExtraFiles = dir, environ, []*os.File{read}
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us; we stop it
	output, err := shell.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	if err := shell.Start(); err != nil {
		return nil, errors.Join(err, write.Close())
	}
	t := &terminal{name: name, shell: shell, commands: write, lines: make(chan string, 4096)}
	go func() {
		defer close(t.lines)
		scanner := bufio.NewScanner(output)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			t.lines <- scanner.Text()
		}
		_, _ = io.Copy(io.Discard, output) // a line that is too long ends the scanner, not the shell
	}()
	return t, nil
}

// step runs a command to its end, or until all that is shown was printed if it goes on.
func (t *terminal) step(ctx context.Context, s step, names names, goesOn bool) error {
	if s.command != "" {
		if err := t.ended(ctx); err != nil {
			return err
		}
		if _, err := t.commands.WriteString(s.command + "\x00"); err != nil {
			return err
		}
		t.running, t.failed = s.command, false
	}
	t.loose = len(s.shown) > 0 && s.shown[len(s.shown)-1] == anything
	if goesOn {
		return t.follow(ctx, s.shown, names)
	}
	var printed []string
	for {
		line, code, err := t.next(ctx, patience)
		if err != nil {
			return errors.Join(err, mismatch(s.shown, printed))
		}
		if line != "" || code < 0 {
			printed = append(printed, line)
		}
		if code >= 0 {
			return errors.Join(names.lines(s.shown, printed), t.verdict(code))
		}
	}
}

// ended waits for the end of a command that went on, of which all that it printed was shown.
func (t *terminal) ended(ctx context.Context) error {
	if t.running == "" {
		return nil
	}
	command := t.running
	line, code, err := t.next(ctx, endPatience)
	switch {
	case err != nil:
		return err
	case code < 0 || line != "":
		return fmt.Errorf("terminal %q: %q has printed what no block shows: %s", t.name, command, line)
	}
	return t.verdict(code)
}

// verdict holds the exit code of a command against what it printed.
func (t *terminal) verdict(code int) error {
	switch {
	case code != 0 && !t.failed:
		return fmt.Errorf("it ends with code %d and says nothing of why", code)
	case code == 0 && t.failed:
		return errors.New("it says that something went wrong and ends with code 0")
	}
	return nil
}

// follow waits for the lines of a command that goes on.
func (t *terminal) follow(ctx context.Context, shown []string, names names) error {
	var printed []string
	for at := 0; at < len(shown); {
		skips := shown[at] == anything
		if skips && at == len(shown)-1 {
			return nil
		}
		line, code, err := t.next(ctx, patience)
		if err != nil {
			return errors.Join(err, mismatch(shown, printed))
		}
		printed = append(printed, line)
		want := at
		if skips {
			want = at + 1
		}
		switch {
		case names.line(shown[want], line):
			at = want + 1
		case !skips:
			return mismatch(shown, printed)
		}
		if code >= 0 && at < len(shown) {
			return mismatch(shown, printed)
		}
	}
	return nil
}

// next returns the next line, and the exit code of the command if it has ended there, else -1. A line before the mark
// is one that had no end.
func (t *terminal) next(ctx context.Context, patience time.Duration) (line string, code int, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case line, open := <-t.lines:
		if !open {
			return "", -1, errShellEnded
		}
		text, number, ended := strings.Cut(line, mark)
		t.failed = t.failed || strings.HasPrefix(text, failure)
		if !ended {
			return line, -1, nil
		}
		code, err := strconv.Atoi(number)
		if err != nil {
			return "", -1, err
		}
		t.running = ""
		return text, code, nil
	case <-timer.C:
		return "", -1, fmt.Errorf("%q prints nothing more within %s", t.running, patience)
	case <-ctx.Done():
		return "", -1, ctx.Err()
	}
}

// close stops what runs, as Ctrl-C would, and the shell. What went on must end well, and must not have printed what no
// block shows. ctx does not end: what was interrupted is stopped, too.
func (t *terminal) close(ctx context.Context) error {
	command := t.running
	if command != "" {
		_ = syscall.Kill(-t.shell.Process.Pid, syscall.SIGINT) // it may have ended just now
	}
	_ = t.commands.Close() // the shell ends after that
	var printed []string
	var problem error
	for open := true; open; {
		line, code, err := t.next(ctx, endPatience)
		switch {
		case errors.Is(err, errShellEnded):
			open = false
		case err != nil:
			problem = errors.Join(problem, err)
			_ = syscall.Kill(-t.shell.Process.Pid, syscall.SIGKILL)
		case line != "" || code < 0:
			printed = append(printed, line)
		}
		if code >= 0 {
			problem = errors.Join(problem, t.verdict(code))
		}
	}
	_ = t.shell.Wait() // how its commands ended is known
	if len(printed) > 0 && !t.loose {
		problem = errors.Join(problem, errors.New("it has printed what no block shows"))
	}
	if problem != nil {
		return fmt.Errorf(" terminal %q, %q: %w\n%s", t.name, command, problem, indented(printed))
	}
	return nil
}
