package session

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/limit"
	"github.com/apiary-relay/apiary/pkg/nostr"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// Judge refuses filters that a REQ or COUNT with all of them would be refused for, with the same *fault.Error.
func (srv *Server) Judge(p *commonv1.Principal, filters []nostr.Filter) error {
	_, err := srv.planFor(p, filters)
	return err
}

// Stored passes each stored event that matches to each, and what the relay knows of who is online, as a REQ would
// get them before its EOSE: the same judgement of the filters, the same bounds, the same access. An error of each
// ends it and is returned; any other is a *fault.Error, or one that pkg/fault understands.
func (srv *Server) Stored(
	ctx context.Context, community int64, p *commonv1.Principal, filters []nostr.Filter, each func(raw []byte) error,
) error {
	q, err := srv.planFor(p, filters)
	if err != nil {
		return err
	}
	who := asker(community, p)
	err = srv.presence(ctx, who, community, q, p, func(_ context.Context, raw []byte) error { return each(raw) })
	if err != nil || !q.stored {
		return err
	}
	return srv.stored(ctx, who, community, q, p, func(*searchv1.QueryResponse) {}, func(_ context.Context, raw []byte) error {
		return each(raw)
	})
}

// StoredPage is Stored for a page of what one filter matches; paging is not changed. It reports whether the page may have been cut short,
// before its limit, because of its size.
func (srv *Server) StoredPage(
	ctx context.Context, community int64, p *commonv1.Principal, f nostr.Filter, paging *searchv1.Paging, each func(raw []byte) error,
) (cut bool, err error) {
	q, err := srv.planFor(p, []nostr.Filter{f})
	if err != nil || !q.stored {
		return false, err
	}
	q.paging = []*searchv1.Paging{paging}
	err = srv.stored(ctx, asker(community, p), community, q, p, func(first *searchv1.QueryResponse) { cut = first.GetCut() }, func(_ context.Context, raw []byte) error {
		return each(raw)
	})
	return cut, err
}

// Count answers as a COUNT would be: how many stored events match, and the registers of NIP-45's
// HyperLogLog if the filters are one for which NIP-45 defines them.
func (srv *Server) Count(
	ctx context.Context, community int64, p *commonv1.Principal, filters []nostr.Filter,
) (n uint64, hll []byte, err error) {
	q, err := srv.planFor(p, filters)
	if err != nil {
		return 0, nil, err
	}
	return srv.count(ctx, asker(community, p), community, q, p)
}

// What stored queries of one key may use of the process's places before they go after those of others, and how much
// of the places is left to all that use more: a client that asks much, or what is hard to answer, is served
// from what others leave. New keys cost nothing, so what all connections of an address use is counted as well; once it
// is more than its share, those of them that have more in hand than may run at a time go after others too, whatever
// their keys have used.
const (
	queryShare   = time.Second // of a second: who asks one thing after the other is within it, however slow the answers are
	queryBurst   = 250 * time.Millisecond
	addressShare = 500 * time.Millisecond // of a second
	addressBurst = 2 * time.Second
	greedyPart   = 8 // one in
	askers       = 1 << 14
)

// A connection is a newcomer for so long, and one in keptPart of the places are kept from newcomers: many that come at once, each
// with all that it may ask for at once, are not to keep those waiting that were there.
const (
	newGrace = time.Second
	keptPart = 4
)

// fairConfig is how sessions share so many places.
func fairConfig(places int) limit.FairConfig {
	return limit.FairConfig{
		Places: places, Greedy: places / greedyPart, Share: queryShare, Burst: queryBurst,
		CrowdShare: addressShare, CrowdBurst: addressBurst, Keys: askers,
	}
}

// queryPlaces is fairConfig for stored queries, of which newcomers may have so many, if that is not 0.
func queryPlaces(places, newcomers int) limit.FairConfig {
	cfg := fairConfig(places)
	cfg.Grace, cfg.Newcomers = newGrace, places-max(places/keptPart, 1)
	if newcomers > 0 {
		cfg.Newcomers = min(newcomers, cfg.Newcomers)
	}
	return cfg
}

// askerKey is whose share a stored query is counted to.
type askerKey struct {
	community int64
	pubkey    nostr.PubKey
}

// turn is on whose behalf a place is asked for.
type turn = limit.Asker[askerKey, netip.Prefix]

// asker is a principal that asks one thing at a time, over HTTP.
func asker(community int64, p *commonv1.Principal) turn {
	a := askerKey{community: community}
	if keys := p.GetPubkeys(); len(keys) > 0 {
		copy(a.pubkey[:], keys[0])
	}
	return turn{Key: a}
}

// asker is a principal of the connection, as of now.
func (s *Session) asker(p *commonv1.Principal) turn {
	who := asker(s.community.ID, p)
	who.Crowd, who.Hurries, who.Came = s.client.Network(), int64(s.jobs.inHand()) > s.srv.cfg.ConnQueries, s.began
	return who
}

// stored runs a stored query: begin is called first, with the first response, each with every event. The context of each ends
// with the query's.
func (srv *Server) stored(
	ctx context.Context, who turn, community int64, q query, p *commonv1.Principal,
	begin func(first *searchv1.QueryResponse), each func(ctx context.Context, raw []byte) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, srv.cfg.QueryTimeout)
	defer cancel()
	release, err := srv.queries.Acquire(ctx, who)
	if err != nil {
		return err
	}
	defer release()
	// CallTimeout bounds each wait for search; the time that the client takes does not count.
	ctx, expire := context.WithCancelCause(ctx)
	defer expire(nil)
	watch := time.AfterFunc(srv.cfg.CallTimeout, func() { expire(fault.New(fault.Timeout, "")) })
	defer watch.Stop()

	stream, err := srv.Search.Query(ctx, &searchv1.QueryRequest{
		Community: community, Principal: p, Filters: q.filters, Paging: q.paging,
	})
	if err != nil {
		return callError(ctx, err)
	}
	for first := true; ; first = false {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return callError(ctx, err)
		}
		watch.Stop()
		if first {
			begin(resp)
		}
		for _, raw := range resp.GetEvents() {
			if err := each(ctx, raw); err != nil {
				return err
			}
		}
		watch.Reset(srv.cfg.CallTimeout)
	}
}

// count asks search how many events match, and adds who is online of those that the query asks about. The
// registers are only passed on when the client asked with one filter: with another one besides, even one that
// matches nothing, it could not tell the offset.
func (srv *Server) count(
	ctx context.Context, who turn, community int64, q query, p *commonv1.Principal,
) (n uint64, hll []byte, err error) {
	err = srv.presence(ctx, who, community, q, p, func(context.Context, []byte) error {
		n++
		return nil
	})
	if err != nil || len(q.filters) == 0 {
		return n, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, srv.cfg.QueryTimeout)
	defer cancel()
	release, err := srv.queries.Acquire(ctx, who)
	if err != nil {
		return 0, nil, err
	}
	defer release()
	ctx, expire := context.WithTimeout(ctx, srv.cfg.CallTimeout)
	defer expire()
	resp, err := srv.Search.Count(ctx, &searchv1.CountRequest{
		Community: community, Principal: p, Filters: q.filters,
	})
	if err == nil && len(q.filters) == 1 && len(q.presences) == 0 && !q.dropped {
		hll = resp.GetHll()
	}
	return n + resp.GetCount(), hll, err
}

// callError prefers why ctx has ended to what a call made of it.
func callError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
