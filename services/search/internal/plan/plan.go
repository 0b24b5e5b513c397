package plan

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/services/search/internal/access"
	"github.com/apiary-relay/apiary/services/search/internal/words"
)

// Plan is one statement, ready to be run.
type Plan struct {
	// Shape is the statement's shape.
	Shape Shape
	// SQL is the statement's text, one of All.
	SQL string
	// Args are its arguments, in order.
	Args []any
}

// maxAddresses is how many (kind, author) pairs are looked up one by one; beyond, reading along an index
// is the better way.
const maxAddresses = 4096

// maxRanked is how many of the newest events that a search finds are ranked.
const maxRanked = 10_000

// Rows plans a stored query: the newest events that match, at most limit (positive), of which those are
// returned that fit into maxBytes of raw JSON together (always at least one, if there is one). It is false
// when nothing can match.
func Rows(f *nostr.Filter, r access.Reader, limit int, maxBytes int64) (Plan, bool) {
	return build(f, r, outRows, limit, maxBytes)
}

// Page is a part of what matches.
type Page struct {
	// After is the event that comes before the first one, if that is at exactly until; empty or an id.
	After []byte
	// Offset is how many events are passed over (not negative).
	Offset int
	// Top leaves out replies that were not broadcast. The filter has one channel then, and no search.
	Top bool
	// Prefix has the last word of a search stand for all that begin with it.
	Prefix bool
}

// RowsOf is Rows for a page. With a search there is no After.
func RowsOf(f *nostr.Filter, r access.Reader, page Page, limit int, maxBytes int64) (Plan, bool) {
	return buildPage(f, r, outRows, &page, limit, maxBytes)
}

// Count plans a count up to limit (positive): one row with one number. It is false when nothing can match.
func Count(f *nostr.Filter, r access.Reader, limit int) (Plan, bool) {
	return build(f, r, outCount, limit, 0)
}

// IDs plans a list of the ids that match, in no order, at most limit (positive), each once; for counting
// over several filters. It is false when nothing can match.
func IDs(f *nostr.Filter, r access.Reader, limit int) (Plan, bool) {
	return build(f, r, outIDs, limit, 0)
}

// Authors plans a list of the authors of what matches, one for each event, in no order, at most limit
// (positive). The filter has at most one value in each tag condition. It is false when nothing can match.
func Authors(f *nostr.Filter, r access.Reader, limit int) (Plan, bool) {
	return build(f, r, outAuthors, limit, 0)
}

func build(f *nostr.Filter, r access.Reader, out output, limit int, maxBytes int64) (Plan, bool) {
	return buildPage(f, r, out, nil, limit, maxBytes)
}

// buildPage is build for a page, nil for the first one. As many rows are read as are passed over and returned.
func buildPage(f *nostr.Filter, r access.Reader, out output, page *Page, limit int, maxBytes int64) (Plan, bool) {
	rows := limit
	if page != nil {
		limit += page.Offset
	}
	if f.MatchesNothing || limit <= 0 || (f.Since != nil && f.Until != nil && *f.Since > *f.Until) {
		return Plan{}, false
	}
	channels, ok := channelsOf(f)
	if !ok {
		return Plan{}, false
	}
	var query string
	if f.Search != "" {
		if query, ok = words.In(f.Search); !ok {
			return Plan{}, false
		}
	}
	tags := tagsOf(f)
	driver := choose(f, channels, tags)
	s := Shape{Driver: driver, Channel: channelForm(channels, f.Kinds), Party: partyPossible(f.Kinds), Paged: page != nil, out: out}
	a := arguments{
		"community":   int64(r.Community),
		"keys":        keysOf(r.Keys),
		"now":         r.Now,
		"since":       bound(f.Since, math.MinInt64),
		"until":       bound(f.Until, math.MaxInt64),
		"ids":         idsOf(f.IDs),
		"authors":     authorsOf(f.Authors),
		"kinds":       kindsOf(f.Kinds),
		"channels":    channels,
		"channelkeys": tagKeys(channels),
		"limit":       int64(limit),
		"bytes":       maxBytes,
		"words":       query,
		"ranked":      int64(max(maxRanked, limit)),
	}
	if page != nil {
		s.Top, s.Prefix = page.Top, page.Prefix && driver == DriverWords
		a["rows"], a["offset"], a["cursor"], a["after"] = int64(rows), int64(page.Offset), a["until"], append([]byte{}, page.After...)
	}
	if driver == DriverTag || driver == DriverAction {
		t := tags[0]
		tags = tags[1:]
		a["tag"] = t.name
		if len(t.values) == 1 {
			a["value"] = t.values[0]
		} else {
			s.Many = true
			a["values"] = t.values
		}
	}
	s.Tags = a.addTags(tags)
	if out == outRows && driver.steps() && !s.Top && a.drivers(driver)*limit >= manyRows {
		s.Stepped = true
		a.addSteps(r.Now)
	}
	st := statementOf(s)
	p := Plan{Shape: s, SQL: st.sql, Args: make([]any, len(st.params))}
	for i, name := range st.params {
		p.Args[i] = a[name]
	}
	return p, true
}

// arguments are the values of a statement's parameters by name. A list that does not restrict is a nil
// slice, which is NULL.
type arguments map[string]any

// addTags adds the conditions that are checked on candidates and returns how the shape holds them.
func (a arguments) addTags(tags []condition) TagChecks {
	switch len(tags) {
	case 0:
		return NoTags
	case 1:
		a["tag1"], a["values1"] = tags[0].name, tags[0].values
		return OneTag
	}
	var names []string
	var values [][]byte
	for _, t := range tags {
		for _, v := range t.values {
			names, values = append(names, t.name), append(values, v)
		}
	}
	a["names"], a["namevalues"], a["conditions"] = names, values, int64(len(tags))
	return ManyTags
}

// manyRows is how many candidates a driver with several values may yield at once.
const manyRows = 2000

// The spans of time that are read first, back from now.
const (
	firstStep  = 24 * 60 * 60
	secondStep = 30 * firstStep
)

// drivers returns how many values the driver has.
func (a arguments) drivers(d Driver) int {
	switch d {
	case DriverChannel:
		return len(a["channelkeys"].([][]byte))
	case DriverAuthors:
		return len(a["authors"].([][]byte))
	case DriverKinds:
		return len(a["kinds"].([]int32))
	default:
		return 1
	}
}

// addSteps cuts since to until into three spans that do not overlap, newest first; a span may be empty.
func (a arguments) addSteps(now int64) {
	since, until := a["since"].(int64), a["until"].(int64)
	newest := max(min(until, now), math.MinInt64+secondStep+1)
	first, second := newest-firstStep, newest-secondStep
	a["since1"], a["until1"] = max(since, first), until
	a["since2"], a["until2"] = max(since, second), min(until, first-1)
	a["since3"], a["until3"] = since, min(until, second-1)
}

// choose picks the driver; see the package comment for the order and its reasons. A tag driver drives
// with tags[0], and so does that of actions.
func choose(f *nostr.Filter, channels []string, tags []condition) Driver {
	switch {
	case f.Search != "":
		return DriverWords
	case len(f.IDs) > 0:
		return DriverIDs
	case len(f.Authors) > 0 && allAddressed(f.Kinds) && len(f.Kinds)*len(f.Authors) <= maxAddresses:
		return DriverAddress
	case len(tags) > 0 && isAction(&tags[0], f.Kinds):
		return DriverAction
	case len(tags) > 0 && !tags[0].class:
		return DriverTag
	case channels != nil:
		return DriverChannel
	case len(f.Authors) > 0:
		return DriverAuthors
	case len(tags) > 0:
		return DriverTag
	case len(f.Kinds) > 0:
		return DriverKinds
	default:
		return DriverTime
	}
}

// allAddressed reports whether of events of these kinds only the winner of an address is stored.
func allAddressed(kinds []nostr.Kind) bool {
	for _, k := range kinds {
		if !k.IsReplaceable() && !k.IsAddressable() {
			return false
		}
	}
	return len(kinds) > 0
}

// partyPossible reports whether events of a kind that is not for everybody can match.
func partyPossible(kinds []nostr.Kind) bool {
	return len(kinds) == 0 || slices.ContainsFunc(kinds, func(k nostr.Kind) bool { return kind.Of(k).Readers != kind.Everybody })
}

// condition is a tag condition other than #h.
type condition struct {
	name   string
	values [][]byte // keys of event_tags, ascending, each once
	class  bool     // the letter classes events rather than naming something
}

// tagsOf returns the conditions other than #h, the most telling first: those that name something before
// those that class, the fewest values first, then by letter so that equal filters have equal plans.
func tagsOf(f *nostr.Filter) []condition {
	var tags []condition
	for _, c := range f.Tags {
		if c.Name == 'h' {
			continue
		}
		tags = append(tags, condition{name: string([]byte{c.Name}), values: tagKeys(c.Values), class: isClass(c.Name)})
	}
	slices.SortFunc(tags, func(x, y condition) int {
		if x.class != y.class {
			if x.class {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(len(x.values), len(y.values)), cmp.Compare(x.name, y.name))
	})
	return tags
}

// isClass reports whether a tag of this letter says of what sort an event or its target is (a kind, a
// label, a label's namespace), which many events share.
func isClass(name byte) bool {
	switch name {
	case 'k', 'K', 'l', 'L':
		return true
	}
	return false
}

// isAction reports whether the condition is for what one key has to act on, of kinds that have an index of their own.
func isAction(c *condition, kinds []nostr.Kind) bool {
	return c.name == "p" && len(c.values) == 1 && len(kinds) > 0 &&
		!slices.ContainsFunc(kinds, func(k nostr.Kind) bool { return kind.Of(k).Feeds&kind.NeedsAction == 0 })
}

// channelsOf returns the channels that #h asks for, nil if there is no #h, and false if it can match none.
func channelsOf(f *nostr.Filter) ([]string, bool) {
	values, ok := f.Tag('h')
	if !ok {
		return nil, true
	}
	channels := make([]string, 0, len(values))
	for _, v := range values {
		if access.IsChannel(v) {
			channels = append(channels, v)
		}
	}
	slices.Sort(channels)
	return slices.Compact(channels), len(channels) > 0
}

// channelForm says how #h is checked.
func channelForm(channels []string, kinds []nostr.Kind) Channels {
	isState := func(k nostr.Kind) bool { return kind.Of(k).Scope == kind.State }
	switch {
	case channels == nil:
		return AnyChannel
	case len(kinds) > 0 && !slices.ContainsFunc(kinds, isState):
		return InChannel
	default:
		return InChannelWithState
	}
}

func bound(v *int64, none int64) int64 {
	if v == nil {
		return none
	}
	return *v
}

// keysOf returns the reader's keys; never NULL, because nobody is an empty list here.
func keysOf(keys []nostr.PubKey) [][]byte {
	list := make([][]byte, len(keys))
	for i := range keys {
		list[i] = keys[i][:]
	}
	return list
}

func idsOf(ids []nostr.ID) [][]byte {
	list := make([][]byte, 0, len(ids))
	for i := range ids {
		list = append(list, ids[i][:])
	}
	return distinct(list)
}

func authorsOf(authors []nostr.PubKey) [][]byte {
	list := make([][]byte, 0, len(authors))
	for i := range authors {
		list = append(list, authors[i][:])
	}
	return distinct(list)
}

func tagKeys(values []string) [][]byte {
	list := make([][]byte, 0, len(values))
	for _, v := range values {
		list = append(list, postgres.TagKey(v))
	}
	return distinct(list)
}

func kindsOf(kinds []nostr.Kind) []int32 {
	if len(kinds) == 0 {
		return nil
	}
	list := make([]int32, len(kinds))
	for i, k := range kinds {
		list[i] = int32(k)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// distinct sorts the list and drops repeats, which would yield a candidate twice; an empty list is nil.
func distinct(list [][]byte) [][]byte {
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, bytes.Compare)
	return slices.CompactFunc(list, bytes.Equal)
}
