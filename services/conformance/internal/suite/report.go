package suite

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Print writes the report: a section for each NIP, a table of the NIPs, and as its last line RESULT with
// the numbers as JSON.
func (r Report) Print(w io.Writer) error {
	var failed error
	write := func(format string, args ...any) {
		if _, err := fmt.Fprintf(w, format, args...); err != nil && failed == nil {
			failed = fmt.Errorf("write the report: %w", err)
		}
	}
	for _, part := range r.byNIP() {
		write("NIP-%02d\n", part[0].Case.NIP)
		for i := range part {
			part[i].print(write)
		}
		write("\n")
	}
	if err := r.table(w); err != nil {
		return err
	}
	line, err := json.Marshal(struct {
		Passed     int `json:"passed"`
		Failed     int `json:"failed"`
		NotClaimed int `json:"not_claimed"`
	}{r.Count(Passed), r.Count(Failed), r.Count(NotClaimed)})
	if err != nil {
		return err
	}
	write("RESULT %s\n", line)
	return failed
}

// byNIP cuts the report into the parts of each NIP.
func (r Report) byNIP() []Report {
	var parts []Report
	for from, i := 0, 1; i <= len(r); i++ {
		if i == len(r) || r[i].Case.NIP != r[from].Case.NIP {
			parts = append(parts, r[from:i])
			from = i
		}
	}
	return parts
}

// margin is where what is said of a case begins.
const margin = "                 "

func (r *Result) print(write func(string, ...any)) {
	write("  %-12s %-40s %s\n", r.Outcome, r.Case.ID, r.Case.Title)
	switch r.Outcome {
	case Failed:
		write("%sexpected: %s\n%ssaw:      %s\n", margin, printable(r.Expected), margin, printable(r.Saw))
	case NotClaimed:
		write("%s%s\n", margin, printable(r.Why))
	case Passed:
	}
}

// printable makes what a relay said fit for a terminal: without control characters, further lines under the
// first.
func printable(s string) string {
	var b strings.Builder
	for _, c := range strings.TrimRight(s, "\n") {
		switch {
		case c == '\n':
			b.WriteString("\n" + margin + "          ")
		case unicode.IsPrint(c) || c == '\t':
			b.WriteRune(c)
		default:
			fmt.Fprintf(&b, "<U+%04X>", c)
		}
	}
	return b.String()
}

// table writes a line for each NIP.
func (r Report) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "NIP\tpassed\tfailed\tnot claimed\t")
	for _, part := range r.byNIP() {
		fmt.Fprintf(t, "%02d\t%d\t%d\t%d\t\n", part[0].Case.NIP, part.Count(Passed), part.Count(Failed), part.Count(NotClaimed))
	}
	fmt.Fprintln(t)
	return t.Flush()
}
