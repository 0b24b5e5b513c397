package model

import (
	"encoding/json"
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Filter is a NIP-01 filter as a client writes it. A nil list is not written, an empty one is.
type Filter struct {
	IDs, Authors []string
	Kinds        []nostr.Kind
	// Tags are the conditions by letter, without the #.
	Tags map[string][]string
	// Since and Until are Unix seconds.
	Since, Until *int64
	Limit        *int
	// Search is a NIP-50 query; Match does not know it.
	Search string
}

// MarshalJSON writes the filter as it goes into a REQ.
func (f Filter) MarshalJSON() ([]byte, error) {
	m := map[string]any{}
	put := func(key string, value any, there bool) {
		if there {
			m[key] = value
		}
	}
	put("ids", f.IDs, f.IDs != nil)
	put("authors", f.Authors, f.Authors != nil)
	put("kinds", f.Kinds, f.Kinds != nil)
	put("since", f.Since, f.Since != nil)
	put("until", f.Until, f.Until != nil)
	put("limit", f.Limit, f.Limit != nil)
	put("search", f.Search, f.Search != "")
	for letter, values := range f.Tags {
		put("#"+letter, values, true)
	}
	return json.Marshal(m)
}

// String returns the filter's JSON.
func (f Filter) String() string {
	b, err := f.MarshalJSON()
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Match reports whether an event passes the filter: every condition that is there holds (NIP-01).
func (f *Filter) Match(e *nostr.Event) bool {
	if f.IDs != nil && !slices.Contains(f.IDs, e.ID.String()) {
		return false
	}
	if f.Authors != nil && !slices.Contains(f.Authors, e.PubKey.String()) {
		return false
	}
	if f.Kinds != nil && !slices.Contains(f.Kinds, e.Kind) {
		return false
	}
	if f.Since != nil && e.CreatedAt < *f.Since {
		return false
	}
	if f.Until != nil && e.CreatedAt > *f.Until {
		return false
	}
	for letter, values := range f.Tags {
		if !hasTag(e, letter, values) {
			return false
		}
	}
	return true
}

// hasTag reports whether the event has a tag of this name whose first value is one of values.
func hasTag(e *nostr.Event, name string, values []string) bool {
	for _, tag := range e.Tags {
		if len(tag) >= 2 && tag[0] == name && slices.Contains(values, tag[1]) {
			return true
		}
	}
	return false
}

// MatchAny reports whether an event passes one of the filters.
func MatchAny(filters []Filter, e *nostr.Event) bool {
	for i := range filters {
		if filters[i].Match(e) {
			return true
		}
	}
	return false
}
