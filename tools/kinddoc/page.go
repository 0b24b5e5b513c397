package main

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr/kind"
)

//go:embed kinds.md.tmpl
var words string

// page returns the page: the words, and the table after them.
func page() []byte {
	var b strings.Builder
	b.WriteString(words)
	b.WriteString("\n| kind | name | meaning | source | kept | channel | sent by | read by | filters | form | |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, row := range kind.All() {
		for _, cell := range []string{
			numbers(row), row.Name, row.Meaning, row.Source, classes[row.Class], scopes[row.Scope],
			senders[row.Sender], readers[row.Readers], asks[row.Ask], form(row.Form), marks(row.Rules),
		} {
			b.WriteString("| ")
			if cell != "" {
				b.WriteString(cell + " ")
			}
		}
		b.WriteString("|\n")
	}
	return []byte(b.String())
}

func numbers(row kind.Info) string {
	if row.First == row.Last {
		return fmt.Sprint(row.First)
	}
	return fmt.Sprintf("%d–%d", row.First, row.Last)
}

// form is what an event has to be like.
func form(f kind.Form) string {
	var words []string
	if w := namings[f.D]; w != "" {
		words = append(words, w)
	}
	if f.OneP {
		words = append(words, "one `p`")
	}
	if f.Sealed {
		words = append(words, "encrypted")
	}
	return strings.Join(words, ", ")
}

// marks are the letters of what else holds for a kind.
func marks(r kind.Rules) string {
	var letters strings.Builder
	for _, m := range []struct {
		holds  bool
		letter string
	}{
		{r.Searchable, "S"},
		{r.Audited, "A"},
		{r.Triggers, "W"},
		{r.Feeds&kind.Mentions != 0, "M"},
		{r.Feeds&kind.NeedsAction != 0, "N"},
		{r.Feeds&kind.Activity != 0, "F"},
	} {
		if m.holds {
			letters.WriteString(m.letter)
		}
	}
	return letters.String()
}

// The words of the columns; what goes without saying is empty.
var (
	classes = map[kind.Class]string{
		kind.Regular: "all", kind.Replaceable: "one an author", kind.Ephemeral: "no", kind.Addressable: "one a `d`", kind.Unstored: "never",
	}
	scopes = map[kind.Scope]string{
		kind.Optional: "", kind.Global: "none", kind.Channel: "needed", kind.Target: "its target's", kind.State: "of `d`",
	}
	senders = map[kind.Sender]string{
		kind.Anybody: "", kind.Socket: "WebSocket", kind.Command: "command", kind.Relay: "relay", kind.Proof: "never", kind.Reserved: "nobody",
	}
	readers = map[kind.Readers]string{
		kind.Everybody: "", kind.Parties: "parties", kind.Author: "author", kind.Shared: "if shared", kind.Owner: "owner", kind.Moderators: "moderators",
	}
	namings = map[kind.Naming]string{
		kind.AnyName: "", kind.OneName: "one `d`", kind.Slug: "`d` a slug", kind.Hash: "`d` a hash",
	}
	asks = map[kind.Ask]string{
		kind.Nothing: "", kind.OwnP: "own `#p`", kind.OwnAuthor: "own `authors`", kind.OwnAuthorOrP: "own `#p` or `authors`",
	}
)
