package index

import (
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Plan is what filters are filed under. To make one costs about half of what a large filter costs, and needs no index: whoever
// has many subscriptions to file makes the plans elsewhere. It is not changed by Add and may be filed in several indexes.
type Plan struct{ filters []planned }

// planned is one filter of a Plan.
type planned struct {
	keys []key
	rest nostr.Filter // without what the keys prove
}

// NewPlan plans filters, which are OR-ed. They must not change afterwards. Filters that match nothing cost nothing.
func NewPlan(filters []nostr.Filter) Plan {
	p := Plan{filters: make([]planned, 0, len(filters))}
	for i := range filters {
		if !filters[i].MatchesNothing {
			keys, rest := plan(&filters[i])
			p.filters = append(p.filters, planned{keys, rest})
		}
	}
	return p
}

// plan returns the keys a filter is filed under, without repeats, and what is left of the filter for an
// event that was found by one of them. Whatever the filter matches is found by at least one key.
func plan(f *nostr.Filter) ([]key, nostr.Filter) {
	rest := *f
	rest.Limit, rest.Search = nil, ""
	var proto key
	var values []string
	switch tag := selectiveTag(f.Tags); {
	case len(f.IDs) > 0:
		// An id says everything about an event: kinds would only multiply the keys.
		values = strings32(f.IDs)
		rest.IDs = nil
		return keysOf(key{dim: dimID}, values, nil), rest
	case tag >= 0:
		proto = key{dim: dimTag, tag: f.Tags[tag].Name}
		values = distinct(f.Tags[tag].Values)
		rest.Tags = slices.Delete(slices.Clone(f.Tags), tag, tag+1)
	case len(f.Authors) > 0:
		proto = key{dim: dimAuthor}
		values = strings32(f.Authors)
		rest.Authors = nil
	case len(f.Kinds) > 0:
		rest.Kinds = nil
		return keysOf(key{dim: dimKind}, []string{""}, f.Kinds), rest
	default:
		return keysOf(key{dim: dimAll}, []string{""}, nil), rest
	}
	if kinds := distinct(f.Kinds); len(kinds) > 0 && len(kinds)*len(values) <= maxPairs {
		rest.Kinds = nil
		return keysOf(proto, values, kinds), rest
	}
	return keysOf(proto, values, nil), rest
}

// selectiveTag returns the index of the condition to file a filter under, -1 for none: #p, which names
// somebody, else the one with the fewest values. The group tag is none, because a whole channel has it.
func selectiveTag(tags []nostr.TagCondition) int {
	best := -1
	for i := range tags {
		switch {
		case tags[i].Name == 'p':
			return i
		case tags[i].Name == groupTag:
		case best < 0 || len(tags[i].Values) < len(tags[best].Values):
			best = i
		}
	}
	return best
}

// keysOf returns a key for each value, with each kind if there are kinds.
func keysOf(proto key, values []string, kinds []nostr.Kind) []key {
	kinds = distinct(kinds)
	keys := make([]key, 0, len(values)*max(1, len(kinds)))
	for _, v := range values {
		proto.value = v
		if len(kinds) == 0 {
			proto.kind = anyKind
			keys = append(keys, proto)
		}
		for _, k := range kinds {
			proto.kind = int32(k)
			keys = append(keys, proto)
		}
	}
	return keys
}

// isEmpty reports whether the filter restricts nothing.
func isEmpty(f *nostr.Filter) bool {
	return len(f.IDs) == 0 && len(f.Authors) == 0 && len(f.Kinds) == 0 && len(f.Tags) == 0 &&
		f.Since == nil && f.Until == nil
}

// strings32 returns the distinct values as keys.
func strings32[T ~[32]byte](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v[:])
	}
	return distinct(out)
}

// distinct returns the values without repeats; the argument is not changed.
func distinct[T ~string | ~uint16](values []T) []T {
	out := slices.Clone(values)
	slices.Sort(out)
	return slices.Compact(out)
}
