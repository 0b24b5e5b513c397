package bridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
)

// maxThreadWindows is how many of them may be windows of threads, by the contract of such windows.
const maxThreadWindows = 4

// maxExtended is how many filters of one request may have extensions: each is several questions to search.
const maxExtended = 5

// maxPaged is how many events a page by number may pass over and return, by search's contract.
const maxPaged = 5000

// extension is what a filter of a query says besides NIP-01: fields that only exist over HTTP.
type extension struct {
	BeforeID   *string `json:"before_id"`
	Page       *int    `json:"page"`
	TopLevel   bool    `json:"top_level"`
	IncludeAux bool    `json:"include_aux"`
	Summaries  bool    `json:"include_summaries"`

	SearchMode string `json:"search_mode"`

	FeedTypes []string `json:"feed_types"`

	ThreadWindow bool `json:"thread_window"`

	DepthLimit *uint32 `json:"depth_limit"`
	Cursor     *int64  `json:"thread_cursor"`
	CursorID   *string `json:"thread_cursor_id"`
}

// aliases are other names of fields, as some clients write them.
var aliases = map[string]string{
	"searchMode": "search_mode", "search_page": "page", "searchPage": "page",
	"depthLimit": "depth_limit", "threadCursor": "thread_cursor", "threadCursorId": "thread_cursor_id",
}

// extensions are the names of the fields, those of aliases included.
var extensions = slices.AppendSeq([]string{
	"before_id", "page", "top_level", "include_aux", "include_summaries", "depth_limit", "thread_cursor", "thread_cursor_id", "search_mode", "feed_types", "thread_window",
}, maps.Keys(aliases))

// extend takes the extensions out of an array of filters: rest has the filters without them, in order, and list what
// each had, nil where it had none. What is no array of objects is left as it is, for who reads the filters to refuse.
func extend(body []byte) (rest []byte, list []*extension, err error) {
	if !slices.ContainsFunc(extensions, func(name string) bool { return bytes.Contains(body, []byte(`"`+name+`"`)) }) {
		return body, nil, nil
	}
	var objects []json.RawMessage
	if json.Unmarshal(body, &objects) != nil {
		return body, nil, nil //nolint:nilerr // who reads the filters says what is wrong
	}
	list = make([]*extension, len(objects))
	rest = []byte{'['}
	for i, object := range objects {
		if i > 0 {
			rest = append(rest, ',')
		}
		if rest, list[i], err = takeOut(rest, object); err != nil {
			return nil, nil, err
		}
	}
	return append(rest, ']'), list, nil
}

// takeOut appends an object without the extensions to rest, field by field, so that one that comes twice still does.
func takeOut(rest []byte, object json.RawMessage) ([]byte, *extension, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return append(rest, object...), nil, nil //nolint:nilerr // who reads the filters says what is wrong
	}
	var kept, taken fields
	for d.More() {
		var value json.RawMessage
		token, err := d.Token()
		name, ok := token.(string)
		if err == nil && ok {
			err = d.Decode(&value)
		}
		if err != nil || !ok {
			return nil, nil, fault.Wrap(fault.Invalid, "invalid filters: a filter must be a JSON object", err)
		}
		if other, ok := aliases[name]; ok {
			name = other
		}
		to := &kept
		if slices.Contains(extensions, name) {
			if slices.Contains(taken.names, name) {
				return nil, nil, fault.New(fault.Invalid, "invalid filters: filter has a key twice")
			}
			to = &taken
		}
		if err := to.add(name, value); err != nil {
			return nil, nil, fault.Internal(err) // a string always marshals
		}
	}
	rest = append(append(append(rest, '{'), kept.text...), '}')
	if len(taken.names) == 0 {
		return rest, nil, nil
	}
	var e extension
	if err := json.Unmarshal(slices.Concat([]byte{'{'}, taken.text, []byte{'}'}), &e); err != nil {
		return nil, nil, fault.Wrap(fault.Invalid, "invalid filters: "+strings.Join(taken.names, " or ")+" is of another type", err)
	}
	return rest, &e, nil
}

// fields are those of a JSON object, without its braces.
type fields struct {
	names []string
	text  []byte
}

func (f *fields) add(name string, value json.RawMessage) error {
	quoted, err := json.Marshal(name)
	if err != nil {
		return err
	}
	if len(f.names) > 0 {
		f.text = append(f.text, ',')
	}
	f.names = append(f.names, name)
	f.text = append(append(append(f.text, quoted...), ':'), value...)
	return nil
}

// paging is where a filter's page begins; most is the largest limit of a filter, and that of one without.
func (e *extension) paging(f *nostr.Filter, most int) (*searchv1.Paging, error) {
	p := &searchv1.Paging{Prefix: e.SearchMode != ""}
	if p.GetPrefix() && (e.SearchMode != "prefix" || f.Search == "") {
		return nil, fault.New(fault.Invalid, "search_mode must be prefix, with a search")
	}
	if e.BeforeID != nil {
		switch id, err := nostr.ParseID(*e.BeforeID); {
		case f.Until == nil:
			return nil, fault.New(fault.Invalid, "before_id requires until to be set")
		case err != nil:
			return nil, fault.New(fault.Invalid, "before_id must be a 64-char hex event id")
		case f.Search != "" || e.Page != nil:
			return nil, fault.New(fault.Invalid, "before_id goes with neither search nor page")
		default:
			p.AfterId = id[:]
		}
	}
	if e.Page != nil {
		limit := most
		if f.Limit != nil {
			limit = min(limit, *f.Limit)
		}
		switch {
		case *e.Page < 1:
			return nil, fault.New(fault.Invalid, "page must be at least 1")
		case *e.Page > maxPaged || *e.Page*limit > maxPaged:
			return nil, fault.New(fault.Invalid, fmt.Sprintf("page times limit is more than %d: page with until and before_id", maxPaged))
		}
		p.Offset = uint32((*e.Page - 1) * limit)
	}
	return p, nil
}

// window is the page of a channel that a filter asks for with top_level.
func (e *extension) window(f *nostr.Filter) (w session.Window, err error) {
	channels, _ := f.Tag('h')
	w = session.Window{Filter: *f, Aux: e.IncludeAux, Summaries: e.Summaries}
	switch {
	case len(channels) != 1:
		return w, fault.New(fault.Invalid, "top_level requires exactly one #h channel")
	case f.Search != "" || e.Page != nil:
		return w, fault.New(fault.Invalid, "top_level goes with neither search nor page")
	case (e.BeforeID != nil) != (f.Until != nil):
		return w, fault.New(fault.Invalid, "top_level cursor requires both until and before_id, or neither")
	case e.BeforeID != nil:
		id, err := nostr.ParseID(*e.BeforeID)
		if err != nil {
			return w, fault.New(fault.Invalid, "top_level: before_id must be a 64-hex event id")
		}
		w.After = id[:]
	}
	return w, nil
}

// feeds are the types of feeds by name.
var feeds = map[string]kind.Feeds{
	"mentions": kind.Mentions, "needs_action": kind.NeedsAction, "activity": kind.Activity, "agent_activity": kind.Activity,
}

// feed is what a filter asks for with feed_types.
func (e *extension) feed(f *nostr.Filter) (feed session.Feed, err error) {
	feed.Filter = *f
	for _, name := range e.FeedTypes {
		t, ok := feeds[name]
		if !ok {
			return feed, fault.New(fault.Invalid, "feed_types must be of mentions, needs_action, activity and agent_activity")
		}
		feed.Types = append(feed.Types, t)
	}
	channels, _ := f.Tag('h')
	if len(f.IDs) > 0 || len(f.Tags) > min(len(channels), 1) || f.Search != "" || e.Page != nil || e.BeforeID != nil || e.DepthLimit != nil {
		return feed, fault.New(fault.Invalid, "feed_types goes with kinds, authors, #h, since, until and limit, and with nothing else")
	}
	return feed, nil
}

// thread is the page of a thread that a filter asks for with depth_limit.
func (e *extension) thread(f *nostr.Filter) (t session.Thread, err error) {
	roots, _ := f.Tag('e')
	channels, _ := f.Tag('h')
	t = session.Thread{Filter: *f, Depth: *e.DepthLimit, After: e.Cursor, Aux: e.IncludeAux}
	switch {
	case len(roots) != 1:
		return t, fault.New(fault.Invalid, "depth_limit requires exactly one #e")
	case len(channels) > 1 || len(f.Tags) > 1+len(channels) || len(f.IDs) > 0 || len(f.Authors) > 0 || f.Since != nil || f.Until != nil ||
		f.Search != "" || e.Page != nil || e.BeforeID != nil:
		return t, fault.New(fault.Invalid, "depth_limit goes with kinds, limit and one #h, and with nothing else")
	case e.Cursor == nil && e.CursorID != nil:
		return t, fault.New(fault.Invalid, "thread_cursor_id requires thread_cursor")
	case e.CursorID != nil:
		id, err := nostr.ParseID(*e.CursorID)
		if err != nil {
			return t, fault.New(fault.Invalid, "thread_cursor_id must be a 64-hex event id")
		}
		t.AfterID = id[:]
	}
	return t, nil
}

func (e *extension) isThreadWindow() bool { return e != nil && e.ThreadWindow }

// Bounds of a window of a thread. What is beyond is refused and not brought within: the bounds that the relay signs name what was asked for.
const (
	windowReplies    = 50 // unless the filter says
	maxWindowReplies = 200
	maxWindowDepth   = 100 // also unless the filter says
)

// threadWindow is the page of a thread that a filter asks for with thread_window.
func (e *extension) threadWindow(f *nostr.Filter) (w session.ThreadWindow, err error) {
	w = session.ThreadWindow{Filter: *f, Limit: windowReplies, Depth: maxWindowDepth, Aux: e.IncludeAux}
	channels, _ := f.Tag('h')
	roots, _ := f.Tag('e')
	if len(channels) != 1 || len(roots) != 1 {
		return w, fault.New(fault.Invalid, "thread_window requires exactly one #h channel and one #e event id")
	}
	if w.Root, err = nostr.ParseID(roots[0]); err != nil {
		return w, fault.New(fault.Invalid, "thread_window requires exactly one #h channel and one #e event id")
	}
	if f.Limit != nil {
		w.Limit = uint32(min(max(*f.Limit, 0), maxWindowReplies+1))
	}
	if e.DepthLimit != nil {
		w.Depth = *e.DepthLimit
	}
	switch {
	case len(f.Tags) > 2 || len(f.IDs) > 0 || len(f.Authors) > 0 || f.Since != nil || f.Search != "" || e.TopLevel || e.Summaries ||
		e.FeedTypes != nil || e.Page != nil || e.SearchMode != "" || e.Cursor != nil || e.CursorID != nil:
		return w, fault.New(fault.Invalid, "thread_window goes with kinds, limit, depth_limit, include_aux, until and before_id, and with nothing else")
	case w.Limit < 1 || w.Limit > maxWindowReplies:
		return w, fault.New(fault.Invalid, fmt.Sprintf("thread_window: limit must be 1 to %d", maxWindowReplies))
	case w.Depth < 1 || w.Depth > maxWindowDepth:
		return w, fault.New(fault.Invalid, fmt.Sprintf("thread_window: depth_limit must be 1 to %d", maxWindowDepth))
	case (e.BeforeID != nil) != (f.Until != nil):
		return w, fault.New(fault.Invalid, "thread_window cursor requires both until and before_id, or neither")
	case e.BeforeID != nil:
		id, err := nostr.ParseID(*e.BeforeID)
		if err != nil || *f.Until < 0 {
			return w, fault.New(fault.Invalid, "thread_window: before_id must be a 64-hex event id, and until not negative")
		}
		w.After = id[:]
	}
	return w, nil
}
