package main

import (
	"fmt"
	"slices"
	"strings"
)

// block is a fenced block of the page.
type block struct {
	line     int
	terminal string // its name; the first one has none
	steps    []step
}

// step is one command and what it prints.
type step struct {
	line    int
	command string // empty if what runs already goes on printing
	shown   []string
}

// uses reports whether a command of the block calls a program.
func (b *block) uses(program string) bool {
	return slices.ContainsFunc(b.steps, func(s step) bool { return slices.Contains(strings.Fields(s.command), program) })
}

const fence = "```"

// parse returns the blocks of the language console.
func parse(page string) (blocks []block, err error) {
	var current *block
	inside := false
	for i, line := range strings.Split(page, "\n") {
		number := i + 1
		info, isFence := strings.CutPrefix(line, fence)
		words := strings.Fields(info)
		switch {
		case isFence && inside:
			if current != nil {
				blocks = append(blocks, *current)
			}
			inside, current = false, nil
		case isFence && len(words) > 0 && words[0] == "console":
			if len(words) > 2 {
				return nil, fmt.Errorf("%d: a terminal has one name", number)
			}
			inside, current = true, &block{line: number, terminal: strings.Join(words[1:], "")}
		case isFence:
			inside = true
		case current != nil:
			if err := current.add(line, number); err != nil {
				return nil, err
			}
		}
	}
	if inside {
		return nil, fmt.Errorf("%d: the last block does not end", strings.Count(page, "\n")+1)
	}
	return blocks, nil
}

// add takes a line of the block.
func (b *block) add(line string, number int) error {
	command, isCommand := strings.CutPrefix(line, "$ ")
	more, goesOn := strings.CutPrefix(line, "> ")
	last := len(b.steps) - 1
	switch {
	case isCommand:
		b.steps = append(b.steps, step{line: number, command: command})
	case last < 0 && b.terminal == "":
		return fmt.Errorf("%d: output of no command", number)
	case last < 0:
		b.steps = append(b.steps, step{line: number, shown: []string{line}})
	case goesOn && len(b.steps[last].shown) == 0 && b.steps[last].command != "":
		b.steps[last].command += "\n" + more
	default:
		b.steps[last].shown = append(b.steps[last].shown, line)
	}
	return nil
}
