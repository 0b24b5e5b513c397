package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// anything is a line that stands for any number of lines.
const anything = "..."

// names are what the placeholders of the page have turned out to be.
type names map[string]string

var placeholder = regexp.MustCompile(`<([a-z][a-z0-9-]*)(?::(\d+))?>`)

// line reports whether a printed line is the shown one, and remembers what its placeholders stand for.
func (n names) line(shown, printed string) bool {
	var pattern strings.Builder
	var found []string
	rest := shown
	pattern.WriteString("^")
	for {
		at := placeholder.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		name, length := rest[at[2]:at[3]], -1
		if at[4] >= 0 {
			length, _ = strconv.Atoi(rest[at[4]:at[5]]) // digits
		}
		pattern.WriteString(regexp.QuoteMeta(rest[:at[0]]))
		rest = rest[at[1]:]
		known, isKnown := n[name]
		switch {
		case name == "time":
			pattern.WriteString(`(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d`)
		case isKnown && length >= 0:
			pattern.WriteString(regexp.QuoteMeta(known[:min(length, len(known))]))
		case isKnown:
			pattern.WriteString(regexp.QuoteMeta(known))
		case length >= 0:
			return false // of what?
		default:
			pattern.WriteString(`(\S+)`)
			found = append(found, name)
		}
	}
	pattern.WriteString(regexp.QuoteMeta(rest) + "$")
	values := regexp.MustCompile(pattern.String()).FindStringSubmatch(printed)
	if values == nil {
		return false
	}
	// A name that stands twice in the line where it is new must be the same both times.
	fresh := names{}
	for i, name := range found {
		if earlier, twice := fresh[name]; twice && earlier != values[i+1] {
			return false
		}
		fresh[name] = values[i+1]
	}
	for name, value := range fresh {
		n[name] = value
	}
	return true
}

// lines compares what was printed with what is shown.
func (n names) lines(shown, printed []string) error {
	at := 0
	for i := 0; i < len(shown); i++ {
		if shown[i] != anything {
			if at >= len(printed) || !n.line(shown[i], printed[at]) {
				return mismatch(shown, printed)
			}
			at++
			continue
		}
		if i == len(shown)-1 {
			return nil
		}
		for at < len(printed) && !n.line(shown[i+1], printed[at]) {
			at++
		}
	}
	if at < len(printed) {
		return mismatch(shown, printed)
	}
	return nil
}

// mismatch shows both.
func mismatch(shown, printed []string) error {
	return fmt.Errorf("the page shows\n%s\nand what is printed is\n%s", indented(shown), indented(printed))
}

func indented(lines []string) string {
	if len(lines) == 0 {
		return "    (nothing)"
	}
	return "    " + strings.Join(lines, "\n    ")
}
