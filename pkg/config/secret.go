package config

import "log/slog"

const redacted = "redacted"

// Secret is a text that shows itself only to Reveal. Printing, logging and marshalling give
// "redacted", or nothing when it is empty. The zero value is the empty secret.
type Secret struct{ value string }

// NewSecret wraps s.
func NewSecret(s string) Secret { return Secret{s} }

// Reveal returns the text. Whoever calls it is responsible for where the text goes.
func (s Secret) Reveal() string { return s.value }

// IsSet reports whether the secret is not empty.
func (s Secret) IsSet() bool { return s.value != "" }

// String returns "redacted" or the empty string.
func (s Secret) String() string {
	if s.value == "" {
		return ""
	}
	return redacted
}

// GoString keeps %#v from showing the text.
func (s Secret) GoString() string { return "config.Secret(" + s.String() + ")" }

// LogValue keeps logs from showing the text.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText keeps encoders from showing the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText sets the text.
func (s *Secret) UnmarshalText(b []byte) error {
	s.value = string(b)
	return nil
}
