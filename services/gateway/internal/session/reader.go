package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// ErrMoved is the cause of the error of an answer of several reads between which it changed who may read: part of it would be what the key
// might not read, or was not shown, and the whole would not say so. To ask again is safe.
var ErrMoved = errors.New("who may read changed between two reads")

// about are the kinds of events that change how another one is shown: deletions, reactions and edits. unmade are those
// of them that undo.
var (
	about  = []nostr.Kind{nostr.KindDeletion, nostr.KindReaction, nostr.KindDeleteEvent, nostr.KindMessageEdit}
	unmade = []nostr.Kind{nostr.KindDeletion, nostr.KindDeleteEvent}
)

// maxAuxPages is how many times the largest limit of a filter is read, each of the two times that events about others are looked for.
const maxAuxPages = 4

// place is where an event stands in the order of stored events.
type place struct {
	id        nostr.ID
	createdAt int64
}

// reader reads events for one answer.
type reader struct {
	srv       *Server
	community int64
	principal *commonv1.Principal
	channel   string // empty: any
	each      func(raw []byte) error
	seen      map[nostr.ID]bool // what was passed to each
}

func (srv *Server) reader(community int64, p *commonv1.Principal, each func(raw []byte) error) *reader {
	return &reader{srv: srv, community: community, principal: p, each: each, seen: make(map[nostr.ID]bool)}
}

// standing is whether the reader may read the channel, by which versions of access.
type standing struct {
	readable           bool
	community, channel uint64
}

// enter makes the reader one of a channel, and asks whether it may read there.
func (r *reader) enter(ctx context.Context, channel string) (standing, error) {
	r.channel = channel
	ctx, cancel := context.WithTimeoutCause(ctx, r.srv.cfg.CallTimeout, fault.New(fault.Overloaded, ""))
	defer cancel()
	resp, err := r.srv.Search.CheckAccess(ctx, &searchv1.CheckAccessRequest{
		Community: r.community, Channel: channel, Pubkeys: r.principal.GetPubkeys(),
	})
	if err != nil {
		return standing{}, callError(ctx, err)
	}
	return standing{slices.Contains(resp.GetAllowed(), true), resp.GetCommunityAclVersion(), resp.GetChannelAclVersion()}, nil
}

// leave fails with ErrMoved if it is not as when the reader entered: each read decided for itself who may read, and the relay is about to
// sign something about all of them. what names what was read.
func (r *reader) leave(ctx context.Context, before standing, what string) error {
	now, err := r.enter(ctx, r.channel)
	if err == nil && now != before {
		err = fault.Wrap(fault.Overloaded, what+" authorization changed; retry query", ErrMoved)
	}
	return err
}

// inTurn asks search something that is as much work as a stored query, when it is the key's turn to.
func (r *reader) inTurn(ctx context.Context, ask func(ctx context.Context) error) error {
	release, err := r.srv.queries.Acquire(ctx, asker(r.community, r.principal))
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, r.srv.cfg.CallTimeout, fault.New(fault.Overloaded, ""))
	defer cancel()
	if err := ask(ctx); err != nil {
		return callError(ctx, err)
	}
	return nil
}

// sign passes what the relay says about an answer.
func (r *reader) sign(ctx context.Context, overlays []*ingestv1.Overlay) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.srv.cfg.CallTimeout, fault.New(fault.Overloaded, ""))
	defer cancel()
	signed, err := r.srv.Overlays.SignOverlays(ctx, &ingestv1.SignOverlaysRequest{Overlays: overlays})
	if err != nil {
		return callError(ctx, err)
	}
	for _, raw := range signed.GetEvents() {
		if err := r.each(raw); err != nil {
			return err
		}
	}
	return nil
}

// cursorOf is what bounds say of a page, as fields of a JSON object: whether there is more behind its rows, and where.
func cursorOf(rows []place, more bool) string {
	next := "null"
	if more {
		last := rows[len(rows)-1]
		next = fmt.Sprintf(`{"created_at":%d,"id":"%s"}`, last.createdAt, last.id)
	}
	return fmt.Sprintf(`"has_more":%t,"next_cursor":%s`, more, next)
}

// pass passes an event on, unless it was before.
func (r *reader) pass(raw []byte) (place, error) {
	ev, err := wire.DecodeEvent(raw, wire.Limits{})
	if err != nil {
		return place{}, fault.Internal(err)
	}
	at := place{ev.ID, ev.CreatedAt}
	if r.seen[ev.ID] {
		return at, nil
	}
	r.seen[ev.ID] = true
	return at, r.each(raw)
}

// aux passes what is about the rows, and what undoes that.
func (r *reader) aux(ctx context.Context, rows []place) error {
	found, err := r.references(ctx, about, rows)
	if err != nil {
		return err
	}
	_, err = r.references(ctx, unmade, found)
	return err
}

// references passes the newest events of the kinds, in the channel if there is one, that refer to others by an e tag.
func (r *reader) references(ctx context.Context, kinds []nostr.Kind, to []place) (found []place, err error) {
	if len(to) == 0 {
		return nil, nil
	}
	ids := make([]string, len(to))
	for i := range to {
		ids[i] = to[i].id.String()
	}
	limit := r.srv.cfg.Limit
	f := nostr.Filter{Kinds: kinds, Limit: &limit, Tags: []nostr.TagCondition{{Name: 'e', Values: ids}}}
	if r.channel != "" {
		f.Tags = append(f.Tags, nostr.TagCondition{Name: 'h', Values: []string{r.channel}})
	}
	paging := &searchv1.Paging{}
	for range maxAuxPages {
		before := len(found)
		cut, err := r.srv.StoredPage(ctx, r.community, r.principal, f, paging, func(raw []byte) error {
			at, err := r.pass(raw)
			found = append(found, at)
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(found)-before < limit && !cut {
			break
		}
		last := found[len(found)-1]
		f.Until, paging = &last.createdAt, &searchv1.Paging{AfterId: last.id[:]}
	}
	return found, nil
}
