package nostr

import (
	"encoding/hex"
	"slices"
	"strconv"
)

// Filter is a NIP-01 filter. A nil list does not restrict; a list that was present and empty on the
// wire makes the whole filter match nothing, which MatchesNothing records (the list itself is nil).
type Filter struct {
	IDs     []ID
	Authors []PubKey
	Kinds   []Kind
	// Tags are the #x conditions, at most one per letter, all of which must hold.
	Tags []TagCondition
	// Since and Until bound created_at, both inclusive, in Unix seconds.
	Since, Until *int64
	// Limit bounds the stored events returned, never negative; it says nothing about live events.
	Limit *int
	// Search is the NIP-50 query, "" for none. Match ignores it: who answers a search decides.
	Search string
	// MatchesNothing is set when some list was present and empty.
	MatchesNothing bool
}

// TagCondition holds for an event that has a tag of this name whose first value is one of Values.
type TagCondition struct {
	// Name is one letter, a–z or A–Z.
	Name byte
	// Values are compared byte by byte.
	Values []string
}

// Match reports whether the event passes the filter (NIP-01): all conditions that are present hold. Of
// a tag only the first value counts, and a tag without a value matches nothing. Limit and Search are
// ignored, so a filter with limit 0 still matches what is live.
func (f *Filter) Match(e *Event) bool {
	if f.MatchesNothing ||
		(f.Since != nil && e.CreatedAt < *f.Since) ||
		(f.Until != nil && e.CreatedAt > *f.Until) ||
		(len(f.Kinds) > 0 && !slices.Contains(f.Kinds, e.Kind)) ||
		(len(f.Authors) > 0 && !slices.Contains(f.Authors, e.PubKey)) ||
		(len(f.IDs) > 0 && !slices.Contains(f.IDs, e.ID)) {
		return false
	}
	for i := range f.Tags {
		if !f.Tags[i].match(e.Tags) {
			return false
		}
	}
	return true
}

func (c *TagCondition) match(tags Tags) bool {
	for _, t := range tags {
		if len(t) >= 2 && len(t[0]) == 1 && t[0][0] == c.Name && slices.Contains(c.Values, t[1]) {
			return true
		}
	}
	return false
}

// Tag returns the values of the condition on the tag with this name, and whether there is one.
func (f *Filter) Tag(name byte) ([]string, bool) {
	for i := range f.Tags {
		if f.Tags[i].Name == name {
			return f.Tags[i].Values, true
		}
	}
	return nil, false
}

// AppendJSON appends the filter as a JSON object. A filter with MatchesNothing is written with
// "ids":[], whatever its IDs, besides its other conditions.
func (f *Filter) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	start := len(dst)
	key := func(k string) {
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = append(dst, k...)
		dst = append(dst, '"', ':')
	}
	ids := f.IDs
	if f.MatchesNothing {
		ids = nil
	}
	if len(ids) > 0 || f.MatchesNothing {
		key("ids")
		dst = appendList(dst, ids, func(dst []byte, id ID) []byte { return appendHex(dst, id[:]) })
	}
	if len(f.Authors) > 0 {
		key("authors")
		dst = appendList(dst, f.Authors, func(dst []byte, p PubKey) []byte { return appendHex(dst, p[:]) })
	}
	if len(f.Kinds) > 0 {
		key("kinds")
		dst = appendList(dst, f.Kinds, func(dst []byte, k Kind) []byte {
			return strconv.AppendUint(dst, uint64(k), 10)
		})
	}
	for _, c := range f.Tags {
		key(string([]byte{'#', c.Name}))
		dst = appendList(dst, c.Values, AppendString)
	}
	if f.Since != nil {
		key("since")
		dst = strconv.AppendInt(dst, *f.Since, 10)
	}
	if f.Until != nil {
		key("until")
		dst = strconv.AppendInt(dst, *f.Until, 10)
	}
	if f.Limit != nil {
		key("limit")
		dst = strconv.AppendInt(dst, int64(*f.Limit), 10)
	}
	if f.Search != "" {
		key("search")
		dst = AppendString(dst, f.Search)
	}
	return append(dst, '}')
}

func appendList[T any](dst []byte, list []T, one func([]byte, T) []byte) []byte {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = one(dst, v)
	}
	return append(dst, ']')
}

func appendHex(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = hex.AppendEncode(dst, b)
	return append(dst, '"')
}
