package client

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Printable returns text as it may be shown on a terminal: everything that could move the cursor, change
// colours or reverse the direction of writing is replaced, and line breaks are kept as blanks.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			return '\uFFFD'
		}
		return r
	}, text)
}

// printer writes events, one after the other.
type printer struct {
	out  io.Writer
	json bool
	now  func() time.Time
}

// event writes one event: its JSON as it came, or a line that a person reads at a glance (further lines
// of its content are indented).
func (p *printer) event(event *nostr.Event, raw []byte) error {
	if p.json {
		_, err := fmt.Fprintf(p.out, "%s\n", raw)
		return err
	}
	var line strings.Builder
	line.WriteString(p.when(event.CreatedAt))
	line.WriteString("  ")
	line.WriteString(event.PubKey.String()[:8])
	if channel, ok := event.Channel(); ok {
		line.WriteString("  #" + Printable(channel))
	}
	if event.Kind != nostr.KindText && event.Kind != nostr.KindChat {
		fmt.Fprintf(&line, "  [kind %d]", event.Kind)
	}
	for i, part := range strings.Split(event.Content, "\n") {
		if i > 0 {
			line.WriteString("\n         ")
		}
		line.WriteString("  ")
		line.WriteString(Printable(part))
	}
	_, err := fmt.Fprintln(p.out, strings.TrimRight(line.String(), " "))
	return err
}

// when is the time of day, with the date when it is not today's.
func (p *printer) when(createdAt int64) string {
	now, at := p.now(), time.Unix(createdAt, 0)
	if at.Year() == now.Year() && at.YearDay() == now.YearDay() {
		return at.Format(time.TimeOnly)
	}
	return at.Format(time.DateTime)
}
