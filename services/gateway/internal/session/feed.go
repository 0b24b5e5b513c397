package session

import (
	"context"
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
)

// Bounds of a feed.
const (
	feedEvents    = 20  // unless the filter says
	maxFeedEvents = 100 // whatever it says
)

// Feed is what somebody who was away wants to see first.
type Feed struct {
	// Filter says which events. It has no #p; its limit is 20 unless it says, and at most 100.
	Filter nostr.Filter
	// Types are the feeds wanted, one bit each, in the order in which they may use the limit.
	Types []kind.Feeds
}

// Feed passes the events of a reader's feeds to each: those of the first type, newest first, then of those that come after it what is
// not among them already, as far as the limit goes.
func (srv *Server) Feed(ctx context.Context, community int64, p *commonv1.Principal, f Feed, each func(raw []byte) error) error {
	if err := srv.Judge(p, []nostr.Filter{f.Filter}); err != nil || f.Filter.MatchesNothing {
		return err
	}
	limit := feedEvents
	if f.Filter.Limit != nil {
		limit = *f.Filter.Limit
	}
	limit = min(limit, maxFeedEvents, srv.cfg.Limit)
	page := srv.reader(community, p, each)
	for i, t := range f.Types {
		if len(page.seen) == limit {
			break
		}
		filter, ok := f.of(t, p)
		if !ok || slices.Contains(f.Types[:i], t) {
			continue
		}
		filter.Limit = &limit // what is there already may be among them
		err := srv.Stored(ctx, community, p, []nostr.Filter{filter}, func(raw []byte) error {
			if len(page.seen) == limit {
				return nil
			}
			_, err := page.pass(raw)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// of returns the filter for one type, and false if nothing can match.
func (f *Feed) of(t kind.Feeds, p *commonv1.Principal) (nostr.Filter, bool) {
	filter := f.Filter
	filter.Kinds = kind.List(func(r kind.Rules) bool { return r.Feeds&t != 0 })
	if len(f.Filter.Kinds) > 0 {
		filter.Kinds = slices.DeleteFunc(filter.Kinds, func(k nostr.Kind) bool { return !slices.Contains(f.Filter.Kinds, k) })
	}
	if t != kind.Activity {
		own := nostr.TagCondition{Name: 'p'}
		for _, key := range p.GetPubkeys() {
			own.Values = append(own.Values, nostr.PubKey(key).String())
		}
		filter.Tags = append(slices.Clip(f.Filter.Tags), own)
	}
	return filter, len(filter.Kinds) > 0
}
