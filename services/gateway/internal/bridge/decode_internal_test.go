package bridge

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
)

func TestDecode(t *testing.T) {
	type wish struct {
		MaxUses *uint32 `json:"max_uses"`
	}
	for body, want := range map[string]string{
		`{}`:                                    "",
		" {\"max_uses\": 3}\n":                  "",
		`{"max_use":3}`:                         `unknown field "max_use"`,
		`{"max_uses":3,"ttl":5}`:                `unknown field "ttl"`,
		`{"` + strings.Repeat("x", 99) + `":1}`: `unknown field with a long name`,
		`{"max_uses":"3"}`:                      `max_uses is not as documented`,
		`{"max_uses":-1}`:                       `max_uses is not as documented`,
		`{"max_uses":3}{"max_uses":4}`:          `the body must be one JSON object and nothing else`,
		`{"max_uses":3} x`:                      `the body must be one JSON object and nothing else`,
		`null`:                                  `the body must be a JSON object`,
		`[]`:                                    `the body must be a JSON object`,
		`{"max_uses":`:                          `the body must be a JSON object`,
		``:                                      `the body must be a JSON object`,
	} {
		err := decode([]byte(body), &wish{})
		if want == "" {
			require.NoError(t, err, body)
			continue
		}
		require.Equal(t, fault.Invalid, fault.ReasonOf(err), body)
		require.Equal(t, want, fault.Message(err), body)
	}
}
