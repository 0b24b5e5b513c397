package search

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/search/internal/access"
	"github.com/apiary-relay/apiary/services/search/internal/fixture"
	"github.com/apiary-relay/apiary/services/search/internal/hll"
	"github.com/apiary-relay/apiary/services/search/internal/plan"
)

// world is a community as the test knows it.
type world struct {
	closed   bool
	members  []nostr.PubKey
	admins   []nostr.PubKey // of the members
	banned   []nostr.PubKey
	vanished map[nostr.PubKey]int64
	channels map[string]channel
	events   []*nostr.Event // what is stored
	spread   int64          // seconds between the moments that events are drawn at
}

type channel struct {
	open    bool
	members []nostr.PubKey
}

var (
	people = []nostr.PubKey{nostrtest.PubKey("alice"), nostrtest.PubKey("bob"), nostrtest.PubKey("carol"), nostrtest.PubKey("dave")}
	// hard are tag values whose keys are digests, or look like one.
	hard = []string{strings.Repeat("a", 200), strings.Repeat("a", 201), strings.Repeat("a", 202), "\x01", "\x01abc", strings.Repeat("\x00", 300)}
)

// private are the kinds that are not for everybody, as far as they are stored.
var private = kind.List(func(r kind.Rules) bool {
	return r.Readers != kind.Everybody && r.Class != kind.Ephemeral
})

// drawPartyTag draws a tag that has to do with who may read an event of a private kind.
func drawPartyTag(t *rapid.T) nostr.Tag {
	switch rapid.IntRange(0, 5).Draw(t, "party tag") {
	case 0:
		return nostr.Tag{"shared", rapid.SampledFrom([]string{"true", "false"}).Draw(t, "shared")}
	case 1:
		return nostr.Tag{"shared", "true"}
	case 2:
		return rapid.SampledFrom([]nostr.Tag{{"shared"}, {"shared", "true", "1"}, {"p"}, {"p", "nobody"}}).Draw(t, "odd tag")
	default:
		return nostr.Tag{"p", rapid.SampledFrom(people).Draw(t, "recipient").String()}
	}
}

// strangers wrote nothing.
var strangers = func() []nostr.PubKey {
	list := make([]nostr.PubKey, 500)
	for i := range list {
		list[i] = nostr.PubKey{1, byte(i), byte(i >> 8)}
	}
	return list
}()

func drawWorld(t *rapid.T) *world {
	some := func(what string) []nostr.PubKey {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(people), 0, 3, rapid.ID).Draw(t, what)
	}
	w := &world{closed: rapid.Bool().Draw(t, "closed"), members: some("members"), channels: map[string]channel{}}
	if len(w.members) > 0 {
		w.admins = w.members[:rapid.IntRange(0, 1).Draw(t, "admins")]
	}
	if rapid.IntRange(0, 2).Draw(t, "bans") == 0 {
		w.banned = some("banned")
	}
	for _, h := range []string{"lobby", "x", "y", "c0"} {
		w.channels[h] = channel{rapid.Bool().Draw(t, h+" open"), some(h + " members")}
	}
	w.spread = rapid.SampledFrom([]int64{1, 12 * 3600, 10 * 86400}).Draw(t, "spread")
	for _, e := range nostrtest.Events(0, 30).Draw(t, "events") {
		e.CreatedAt = w.moment(e.CreatedAt)
		switch rapid.IntRange(0, 9).Draw(t, "twist") {
		case 0:
			e.Tags = append(e.Tags, nostr.Tag{"t", rapid.SampledFrom(hard).Draw(t, "hard")})
		case 1:
			e.Kind = rapid.SampledFrom(private).Draw(t, "private kind")
			e.Tags = append(e.Tags, rapid.SliceOfN(rapid.Custom(drawPartyTag), 0, 2).Draw(t, "party tags")...)
		case 2:
			e.Tags = append(nostr.Tags{{"expiration", rapid.SampledFrom([]string{"1", strconv.Itoa(testNow), strconv.Itoa(testNow + 1)}).Draw(t, "expires")}}, e.Tags...)
		case 3:
			e.Kind = nostr.Kind(rapid.IntRange(39000, 39003).Draw(t, "state"))
			e.Tags = append(nostr.Tags{{"d", rapid.SampledFrom([]string{"lobby", "x"}).Draw(t, "state of")}}, e.Tags...)
		case 4:
			e.Tags = slices.DeleteFunc(e.Tags, func(t nostr.Tag) bool { return t.Key() == "h" })
			e.Tags = append(e.Tags, nostr.Tag{"h", rapid.SampledFrom([]string{"lobby", "x", "y", "c0"}).Draw(t, "channel")})
		case 5:
			e.Tags = append(e.Tags, nostr.Tag{"k", rapid.SampledFrom([]string{"1", "9"}).Draw(t, "class")})
		}
		e.ID = e.ComputeID()
		if slices.ContainsFunc(w.events, func(o *nostr.Event) bool { return o.ID == e.ID }) {
			continue
		}
		if h, ok := fixture.ChannelOf(e); !ok || w.has(h) {
			w.events = append(w.events, e) // ingest refuses what is for a channel that does not exist
		}
	}
	w.events = fixture.Winners(w.events)
	w.vanished = map[nostr.PubKey]int64{}
	if len(w.events) > 0 && rapid.IntRange(0, 2).Draw(t, "vanishing") == 0 {
		for _, k := range some("vanished") {
			w.vanished[k] = rapid.SampledFrom(w.events).Draw(t, "until").CreatedAt
		}
	}
	return w
}

// moment spreads the moments that nostrtest draws.
func (w *world) moment(at int64) int64 { return nostrtest.Epoch + (at-nostrtest.Epoch)*w.spread }

func (w *world) has(h string) bool {
	_, ok := w.channels[h]
	return ok
}

func (w *world) store(t *rapid.T, db *fixture.DB, at *access.Reader) {
	admission := "open"
	if w.closed {
		admission = "closed"
	}
	at.Community = db.Community(t, admission, w.members...)
	db.Promote(t, at.Community, "admin", w.admins...)
	db.Ban(t, at.Community, w.banned...)
	for k, until := range w.vanished {
		db.Vanish(t, at.Community, k, until)
	}
	for h, c := range w.channels {
		visibility := "private"
		if c.open {
			visibility = "open"
		}
		db.Channel(t, at.Community, h, visibility, c.members...)
	}
	db.Insert(t, at.Community, w.events...)
}

// visible is the access rule in plain words.
func (w *world) visible(e *nostr.Event, r access.Reader) bool {
	if at, ok := e.Expiration(); ok && at <= r.Now {
		return false
	}
	keys := slices.DeleteFunc(slices.Clone(r.Keys), func(k nostr.PubKey) bool {
		return slices.Contains(w.banned, k) || (w.closed && !slices.Contains(w.members, k))
	})
	if len(keys) == 0 && (w.closed || len(r.Keys) > 0) {
		return false
	}
	if w.gone(e.PubKey, e) {
		return false
	}
	if h, ok := fixture.ChannelOf(e); ok {
		c := w.channels[h]
		if !c.open && !slices.ContainsFunc(keys, func(k nostr.PubKey) bool { return slices.Contains(c.members, k) }) {
			return false
		}
	}
	audience := kind.AudienceOf(e)
	return audience.IsEverybody() || slices.ContainsFunc(keys, func(k nostr.PubKey) bool {
		if e.PubKey != k && e.Kind == nostr.KindGiftWrap && w.gone(k, e) {
			return false
		}
		return audience.Has(k, slices.Contains(w.admins, k))
	})
}

// gone reports whether a key has asked to vanish since an event.
func (w *world) gone(k nostr.PubKey, e *nostr.Event) bool {
	until, ok := w.vanished[k]
	return ok && until >= e.CreatedAt
}

// matches is nostr.Filter.Match, and #h looks at the event's channel.
func matches(f *nostr.Filter, e *nostr.Event) bool {
	if hs, ok := f.Tag('h'); ok {
		if h, ok := fixture.ChannelOf(e); !ok || !slices.Contains(hs, h) {
			return false
		}
	}
	return f.Match(e)
}

// answer is what a filter should give, newest first.
func (w *world) answer(f *nostr.Filter, r access.Reader, limit int) []nostr.ID {
	list := []*nostr.Event{}
	for _, e := range w.events {
		if matches(f, e) && w.visible(e, r) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *nostr.Event) int {
		if fixture.Before(a, b) {
			return -1
		}
		return 1
	})
	ids := []nostr.ID{}
	for _, e := range list[:min(limit, len(list))] {
		ids = append(ids, e.ID)
	}
	return ids
}

func drawFilter(t *rapid.T, w *world) *nostr.Filter {
	f := nostrtest.Filter(w.events...).Draw(t, "filter")
	for _, bound := range []*int64{f.Since, f.Until} {
		if bound != nil {
			*bound = w.moment(*bound)
		}
	}
	switch rapid.IntRange(0, 9).Draw(t, "filter twist") {
	case 0:
		f.Tags = addCondition(f.Tags, 't', rapid.SliceOfNDistinct(rapid.SampledFrom(hard), 1, 3, rapid.ID).Draw(t, "hard values"))
	case 1:
		f.Tags = addCondition(f.Tags, 'h', rapid.SliceOfN(rapid.SampledFrom([]string{"lobby", "x", "y", "c0", "nowhere"}), 1, 3).Draw(t, "channels"))
	case 2:
		f.Tags = addCondition(f.Tags, 'k', []string{"1"})
	case 3:
		f.Kinds = rapid.SliceOfN(rapid.SampledFrom(private), 1, 4).Draw(t, "private kinds")
	case 4:
		f.Kinds = []nostr.Kind{0, 3, 10002, 30023, 39000}
		f.Authors = people[:3]
	case 6: // so many authors that the newest are looked for first
		f.Authors = append(slices.Clone(people[:3]), strangers...)
		f.Limit = limit(rapid.IntRange(len(f.Authors)/200, 5).Draw(t, "small limit"))
		f.Tags = nil
	case 5:
		f.Tags = addCondition(f.Tags, 'p', []string{rapid.SampledFrom(people).Draw(t, "of").String()})
	}
	return &f
}

func addCondition(tags []nostr.TagCondition, name byte, values []string) []nostr.TagCondition {
	tags = slices.DeleteFunc(tags, func(c nostr.TagCondition) bool { return c.Name == name })
	return append(tags, nostr.TagCondition{Name: name, Values: values})
}

// The statements return exactly what Filter.Match and the access rule say, in order, within the limit, and
// count the same.
func TestQueryEqualsMatch(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Limit = 8
	narrow, db := newService(t, cfg)
	wide, err := New(DefaultConfig(), Deps{DB: narrow.db, Now: narrow.now})
	require.NoError(t, err)
	rapid.Check(t, func(rt *rapid.T) {
		s := rapid.SampledFrom([]*Service{narrow, wide}).Draw(rt, "service")
		w := drawWorld(rt)
		r := access.Reader{
			Keys: rapid.SliceOfNDistinct(rapid.SampledFrom(people), 0, 2, rapid.ID).Draw(rt, "reader"), Now: s.now().Unix(),
		}
		w.store(rt, db, &r)
		for range 4 {
			filters := []*nostr.Filter{}
			for range rapid.IntRange(1, 3).Draw(rt, "filters") {
				filters = append(filters, drawFilter(rt, w))
			}
			w.check(t.Context(), rt, s, r, filters)
			w.checkPages(t.Context(), rt, s, r, filters[0])
		}
		w.checkAccess(t.Context(), rt, s, r)
	})
}

// checkPages walks through what a filter matches, by the last event of each page or by their number: nothing is left out
// or comes twice, also where many events are of one second.
func (w *world) checkPages(ctx context.Context, t *rapid.T, s *Service, r access.Reader, f *nostr.Filter) {
	t.Helper()
	want := w.answer(f, r, len(w.events))
	size, byNumber := rapid.IntRange(1, 4).Draw(t, "page size"), rapid.Bool().Draw(t, "pages by number")
	one := *f
	one.Limit = &size
	var page plan.Page
	got := []nostr.ID{}
	for len(got) <= len(want) {
		_, _, answers, err := s.query(ctx, r, []*nostr.Filter{&one}, []plan.Page{page})
		require.NoError(t, err)
		if len(answers) == 0 || len(answers[0]) == 0 {
			break
		}
		for _, e := range answers[0] {
			got = append(got, e.ID)
		}
		if byNumber {
			page.Offset = len(got)
			continue
		}
		last := answers[0][len(answers[0])-1]
		one.Until, page.After = &last.CreatedAt, last.ID[:]
	}
	require.Equal(t, want, got)
}

func (w *world) check(ctx context.Context, t *rapid.T, s *Service, r access.Reader, filters []*nostr.Filter) {
	t.Helper()
	_, _, answers, err := s.query(ctx, r, filters, nil)
	require.NoError(t, err)
	got := []nostr.ID{}
	for e := range merge(answers) {
		i := slices.IndexFunc(w.events, func(x *nostr.Event) bool { return x.ID == e.ID })
		require.GreaterOrEqual(t, i, 0)
		require.Equal(t, string(w.events[i].AppendJSON(nil)), string(e.Raw), "the bytes as submitted")
		got = append(got, e.ID)
	}
	in := map[nostr.ID]bool{}
	all := map[nostr.ID]bool{}
	for _, f := range filters {
		for _, id := range w.answer(f, r, s.limit(f)) {
			in[id] = true
		}
		for _, id := range w.answer(f, r, len(w.events)) {
			all[id] = true
		}
	}
	want := []nostr.ID{}
	for _, id := range w.answer(&nostr.Filter{}, r, len(w.events)) { // for its order
		if in[id] {
			want = append(want, id)
		}
	}
	require.Equal(t, want, got)
	n, err := s.count(ctx, r, filters)
	require.NoError(t, err)
	require.Equal(t, len(all), n)
	if offset, ok := hll.Offset(filters); ok {
		resp, err := s.estimate(ctx, r, filters[0], offset)
		require.NoError(t, err)
		require.Equal(t, uint64(n), resp.GetCount())
		var registers hll.Registers
		for _, e := range w.events {
			if all[e.ID] {
				registers.Add(e.PubKey, offset)
			}
		}
		require.Equal(t, registers[:], resp.GetHll())
	}
}

// checkAccess compares CheckAccess with what a query of each person would show.
func (w *world) checkAccess(ctx context.Context, t *rapid.T, s *Service, r access.Reader) {
	t.Helper()
	for _, h := range []string{"", "lobby", "x", "y", "c0", "nowhere"} {
		topic, err := s.directory.Access(ctx, r.Community, h, people, access.Least{Community: 1, Channel: 1})
		require.NoError(t, err)
		allowed, moderates := topic.Decide(h, people), topic.Moderate(people)
		for i, p := range people {
			e := &nostr.Event{Kind: nostr.KindChat}
			if h != "" {
				e.Tags = nostr.Tags{{"h", h}}
			}
			want := (h == "" || w.has(h)) && w.visible(e, access.Reader{Keys: []nostr.PubKey{p}, Now: r.Now})
			require.Equal(t, want, allowed[i], "%s in %q", p, h)
			require.Equal(t, slices.Contains(w.admins, p) && !slices.Contains(w.banned, p), moderates[i], p)
		}
	}
}
