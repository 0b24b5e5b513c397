package client

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
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

// What a line shows of tags: so many of them, and of each value so many characters.
const (
	shownTags  = 6
	shownValue = 48
)

// printer writes events, one after the other.
type printer struct {
	out io.Writer
	// json prints events as they came, ids the id of each before its line.
	json, ids bool
	now       func() time.Time
}

// event writes one event: its JSON as it came, or a line that a person reads at a glance (further lines
// of its content are indented).
func (p *printer) event(event *nostr.Event, raw []byte) error {
	if p.json {
		_, err := fmt.Fprintf(p.out, "%s\n", raw)
		return err
	}
	parts := []string{p.when(event.CreatedAt), event.PubKey.String()[:8]}
	if p.ids {
		parts = append([]string{event.ID.String()}, parts...)
	}
	if channel := channelOf(event); channel != "" {
		parts = append(parts, "#"+Printable(channel))
	}
	if label := label(event); label != "" {
		parts = append(parts, label)
	}
	if event.Content != "" {
		lines := strings.Split(event.Content, "\n")
		for i, line := range lines {
			lines[i] = Printable(line)
		}
		parts = append(parts, strings.Join(lines, "\n           "))
	}
	_, err := fmt.Fprintln(p.out, strings.TrimRight(strings.Join(parts, "  "), " "))
	return err
}

// channelOf is the channel of an event, or that whose state it is.
func channelOf(event *nostr.Event) string {
	if kind.Of(event.Kind).Scope == kind.State {
		channel, _ := event.Tags.First("d")
		return channel
	}
	channel, _ := event.Channel()
	return channel
}

// label says what an event is that is no message, and what a message answers.
func label(event *nostr.Event) string {
	if event.Kind == nostr.KindText || event.Kind == nostr.KindChat {
		if parent, ok := marked(event.Tags, "reply"); ok {
			return "(answers " + value(parent) + ")"
		}
		return ""
	}
	text := fmt.Sprintf("[kind %d", event.Kind)
	if info, ok := kind.Lookup(event.Kind); ok {
		text += ": " + info.Meaning
		if info.Sender == kind.Relay {
			text += ", signed by the relay"
		}
	}
	return text + "]" + tags(event)
}

// tags are an event's, but the one that says its channel.
func tags(event *nostr.Event) string {
	var shown []string
	state := kind.Of(event.Kind).Scope == kind.State
	for _, t := range event.Tags {
		if t.Key() == "h" || state && t.Key() == "d" {
			continue
		}
		words := make([]string, 0, len(t))
		for _, v := range t[1:] {
			if v != "" {
				words = append(words, value(v))
			}
		}
		text := value(t.Key())
		if len(words) > 0 {
			text += "=" + strings.Join(words, " ")
		}
		shown = append(shown, text)
	}
	if more := len(shown) - shownTags; more > 0 {
		shown = append(shown[:shownTags], fmt.Sprintf("%d more", more))
	}
	if len(shown) == 0 {
		return ""
	}
	return "  " + strings.Join(shown, ", ")
}

// value is a tag's, cut short; of keys and ids as much as tells them apart.
func value(text string) string {
	if _, err := nostr.ParseID(text); err == nil {
		return text[:8]
	}
	if runes := []rune(text); len(runes) > shownValue {
		text = string(runes[:shownValue]) + "…"
	}
	return Printable(text)
}

// when is the time of day, with the date when it is not today's.
func (p *printer) when(createdAt int64) string {
	now, at := p.now(), time.Unix(createdAt, 0)
	if at.Year() == now.Year() && at.YearDay() == now.YearDay() {
		return at.Format(time.TimeOnly)
	}
	return at.Format(time.DateTime)
}
