// Package words decides what text search knows of an event, and what it understands of a query (NIP-50).
//
// It owns the kinds that are indexed, the words that an event contributes, and which part of a query are
// words. Splitting into words and matching is Postgres's: to_tsvector and websearch_to_tsquery with the
// configuration 'simple', which has no stop words and no stemming, and so no language. The package is pure.
package words

import (
	"strings"
	"unicode/utf8"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
)

// Kinds returns the kinds that are indexed, ascending. They hold text for people: profiles, chat, articles and
// their like. What is encrypted is not among them, and must never be.
func Kinds() []nostr.Kind { return kind.List(func(r kind.Rules) bool { return r.Searchable }) }

// IsIndexed reports whether events of the kind are indexed.
func IsIndexed(k nostr.Kind) bool { return kind.Of(k).Searchable }

// MaxBytes is how much of an event is indexed. Postgres has room for 1 MiB of words in a document, and a
// text can have several times its size in words (a URL is one, and its host and path are others).
const MaxBytes = 64 << 10

// Of returns the text of an event: its content, after the title and summary of an article (NIP-23). It is
// cut after MaxBytes, and NUL, which Postgres cannot keep, is a space.
func Of(e *nostr.Event) string {
	content := e.Content
	if e.Kind == nostr.KindArticle {
		for _, name := range []string{"summary", "title"} {
			if value, ok := e.Tags.First(name); ok {
				content = value + "\n" + content
			}
		}
	}
	if len(content) > MaxBytes {
		end := MaxBytes
		for end > 0 && !utf8.RuneStart(content[end]) {
			end--
		}
		content = content[:end]
	}
	return withoutNUL(content)
}

// In returns what of a query is looked for: all but key:value pairs outside of quotes, which are
// extensions of NIP-50 that we know none of. It is false when nothing is left. A URL is no such pair.
func In(query string) (string, bool) {
	var kept []string
	quoted := false
	for _, token := range strings.Fields(withoutNUL(query)) {
		if quoted || !isExtension(token) {
			kept = append(kept, token)
		}
		if strings.Count(token, `"`)%2 == 1 {
			quoted = !quoted
		}
	}
	return strings.Join(kept, " "), len(kept) > 0
}

// isExtension reports whether a token is a key:value pair: a word, a colon, and what does not begin with /.
func isExtension(token string) bool {
	key, value, ok := strings.Cut(token, ":")
	if !ok || key == "" || value == "" || value[0] == '/' {
		return false
	}
	return !strings.ContainsFunc(key, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
	})
}

func withoutNUL(s string) string { return strings.ReplaceAll(s, "\x00", " ") }
