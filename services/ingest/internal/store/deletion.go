package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Statements of deletions.
const (
	// By community_deletions_pkey or community_deletions_community_id_key.
	sqlDeletion = `
SELECT request_id, community_id, uuid::text, owner, hosts, requested_at, lease_until > '-infinity', removed, finished_at IS NOT NULL
FROM ingest.community_deletions WHERE request_id = $1 OR community_id = $2
ORDER BY request_id = $1 DESC LIMIT 1`

	// By communities_pkey, community_hosts_community and outbox_pkey. What the outbox holds of the community was
	// committed before, since it is held.
	sqlRequestDeletion = `
INSERT INTO ingest.community_deletions (request_id, community_id, uuid, owner, hosts, outbox_end)
SELECT $1, c.id, c.uuid, $3,
    ARRAY(SELECT h.host FROM ingest.community_hosts h WHERE h.community_id = c.id ORDER BY h.is_primary DESC, h.host),
    (SELECT coalesce(max(id), 0) FROM ingest.outbox)
FROM ingest.communities c WHERE c.id = $2
ON CONFLICT DO NOTHING`

	// By communities_pkey.
	sqlBeginDeletion = `UPDATE ingest.communities SET deleting_at = now() WHERE id = $1`
)

var (
	// ErrNotArchived says that a community is in use.
	ErrNotArchived = errors.New("the community is not archived")
	// ErrDeletionConflict says that the deletion was asked for under another id, or the id used for another one.
	ErrDeletionConflict = errors.New("the deletion has another request id")
)

// Deletion is how far the deletion of a community is.
type Deletion struct {
	// RequestID names it.
	RequestID string
	community int64
	// UUID and Hosts are those of the community, Owner who had it deleted.
	UUID  string
	Hosts []string
	Owner nostr.PubKey
	// Requested is when it was asked for.
	Requested time.Time
	// Begun is set when rows are being removed, Finished when there are none left. Removed is how many were.
	Begun, Finished bool
	Removed         uint64
}

// Host is the first host that the community had.
func (d *Deletion) Host() string { return firstOf(d.Hosts) }

// of reports whether it is the deletion of the community that ref chooses, which is id, or 0 when there is none: a host may
// have been released since, and have another community.
func (d *Deletion) of(ref CommunityRef, id int64) bool {
	if id != 0 {
		return d.community == id
	}
	if ref.UUID != "" {
		return d.UUID == ref.UUID
	}
	return slices.Contains(d.Hosts, ref.Host)
}

// DeleteCommunity has an archived community deleted and returns at once; DrainCommunity does it. Who asks again with the
// same request id hears how far it is, also when nothing is left. Errors are ErrNoCommunity, also for who does not own
// it, ErrNotArchived and ErrDeletionConflict.
func (s *Store) DeleteCommunity(ctx context.Context, ref CommunityRef, owner nostr.PubKey, requestID string) (Deletion, error) {
	for {
		id, err := s.Find(ctx, ref)
		if err != nil && !errors.Is(err, ErrNoCommunity) {
			return Deletion{}, err
		}
		switch d, ok, err := s.deletion(ctx, requestID, id); {
		case err != nil:
			return Deletion{}, err
		case ok && d.of(ref, id) && d.Owner != owner:
			return Deletion{}, ErrNoCommunity
		case ok && d.of(ref, id) && d.RequestID == requestID:
			return d, nil
		case ok:
			return Deletion{}, ErrDeletionConflict
		case id == 0:
			return Deletion{}, ErrNoCommunity
		}
		if err := s.requestDeletion(ctx, id, owner, requestID); err != nil && !errors.Is(err, errMoved) {
			return Deletion{}, err
		}
	}
}

// deletion returns the deletion with an id, or else that of a community, if there is one.
func (s *Store) deletion(ctx context.Context, requestID string, community int64) (d Deletion, ok bool, err error) {
	err = s.retry(ctx, func(conn *pgx.Conn) error {
		var owner []byte
		var removed int64
		err := conn.QueryRow(ctx, sqlDeletion, requestID, community).
			Scan(&d.RequestID, &d.community, &d.UUID, &owner, &d.Hosts, &d.Requested, &d.Begun, &removed, &d.Finished)
		if err == nil {
			d.Owner, d.Removed = nostr.PubKey(owner), uint64(removed)
		}
		return err
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Deletion{}, false, nil
	case err != nil:
		return Deletion{}, false, fmt.Errorf("look up deletion: %w", err)
	}
	return d, true, nil
}

// requestDeletion notes that a community is to be deleted, unless another call was first, which is errMoved or finds it so.
func (s *Store) requestDeletion(ctx context.Context, id int64, owner nostr.PubKey, requestID string) error {
	_, err := s.administer(ctx, id, lockSet{}, func(x *change) error {
		if err := x.requireOwner(ctx, &owner); err != nil {
			return err
		}
		if !x.state.Communities[id].Archived {
			return ErrNotArchived
		}
		tag, err := x.conn.Exec(ctx, sqlRequestDeletion, requestID, id, owner[:])
		switch {
		case err != nil:
			return fmt.Errorf("request deletion: %w", err)
		case tag.RowsAffected() == 0:
			return errMoved // the id was taken meanwhile
		}
		if _, err := x.conn.Exec(ctx, sqlBeginDeletion, id); err != nil {
			return fmt.Errorf("request deletion: %w", err)
		}
		return x.raise(ctx)
	})
	if errors.Is(err, ErrNoCommunity) {
		if _, ok, lookErr := s.deletion(ctx, requestID, id); lookErr != nil || ok {
			return errors.Join(errMoved, lookErr)
		}
	}
	return err
}
