package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/apiary-relay/apiary/pkg/fault"
)

// maxShownField is the length of the longest name of a field, quotes included, that a refusal repeats.
const maxShownField = 64

// decode reads a body, which must be one JSON object of fields that into has. Another field is refused by its name: who
// mistypes access or max_uses would otherwise be given what nobody asked for. Calls of NIP-86 and filters have forms of
// their own.
func decode(body []byte, into any) error {
	if !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte{'{'}) {
		return fault.New(fault.Invalid, "the body must be a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		return fault.New(fault.Invalid, "the body must be one JSON object and nothing else")
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fault.Wrap(fault.Invalid, wrong.Field+" is not as documented", err)
	}
	// The library has no type for it.
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if len(name) > maxShownField {
			name = "with a long name"
		}
		return fault.Wrap(fault.Invalid, "unknown field "+name, err)
	}
	return fault.Wrap(fault.Invalid, "the body must be a JSON object", err)
}
