package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements of lists of members that are signed later than they change. What is due is looked at again under the lock, so
// that of several replicas one signs.
const (
	// By channels_members_due and communities_pkey. Of a community that is being deleted nothing is signed, and it holds up
	// no other.
	sqlChannelMembersDue = `
SELECT c.community_id, c.h FROM ingest.channels c
WHERE c.members_due_at <= now() AND EXISTS (SELECT FROM ingest.communities k WHERE k.id = c.community_id AND k.deleting_at IS NULL)
ORDER BY c.members_due_at LIMIT $1`

	// By channels_pkey.
	sqlAreChannelMembersDue = `
SELECT coalesce(members_due_at <= now(), false) FROM ingest.channels WHERE community_id = $1 AND id = $2`

	// By communities_members_due.
	sqlRostersDue = `SELECT id FROM ingest.communities WHERE members_due_at <= now() ORDER BY members_due_at LIMIT $1`

	// By communities_pkey. A second replica waits here for the first, and then finds nothing.
	sqlTakeRoster = `UPDATE ingest.communities SET members_due_at = NULL WHERE id = $1 AND members_due_at <= now()`

	// By communities_pkey: the first change sets the time, the next ones are signed with it.
	sqlRosterLater = `
UPDATE ingest.communities SET members_due_at = now() + make_interval(secs => $2) WHERE id = $1 AND members_due_at IS NULL`

	// By communities_pkey.
	sqlRosterSigned = `UPDATE ingest.communities SET members_due_at = NULL WHERE id = $1 AND members_due_at IS NOT NULL`
)

// rosterDelay is how much later than the first of several changes a long list of members is signed: it is signed once in
// that time, however many come and go.
const rosterDelay = 3 * time.Second

// rosterChanged has the relay sign the community's list of members (kind 13534), now or, if it is long, later.
func (x *change) rosterChanged(ctx context.Context) error {
	x.roster = false
	list, err := x.readRoster(ctx, policy.ShortRoster+1)
	if err != nil {
		return err
	}
	if len(list) > policy.ShortRoster {
		return x.exec(ctx, "postpone roster", sqlRosterLater, x.community, rosterDelay.Seconds())
	}
	if err := x.exec(ctx, "remember roster", sqlRosterSigned, x.community); err != nil {
		return err
	}
	x.draftRoster(list)
	return nil
}

// readRoster returns the member tags of up to limit members.
func (x *change) readRoster(ctx context.Context, limit int) (nostr.Tags, error) {
	rows, err := x.conn.Query(ctx, sqlRoster, x.community, limit)
	if err != nil {
		return nil, fmt.Errorf("read roster: %w", err)
	}
	var list nostr.Tags
	var pubkey []byte
	var role string
	if _, err := pgx.ForEachRow(rows, []any{&pubkey, &role}, func() error {
		list = append(list, nostr.Tag{"member", nostr.PubKey(pubkey).String(), role})
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read roster: %w", err)
	}
	return list, nil
}

// draftRoster has the relay sign the list of members, and once what the roles mean (kind 33534).
func (x *change) draftRoster(list nostr.Tags) {
	x.draft(draft{kind: nostr.KindRelayMembers, tags: append(nostr.Tags{protected}, list...)})
	for _, r := range roles {
		x.draft(draft{kind: nostr.KindRelayRole, once: true, tags: nostr.Tags{
			protected, {"d", string(r.role)}, {"label", r.label}, {"description", r.description},
		}})
	}
}

// SignRosters does what SignMembers does, for up to limit communities. Their lock is only shared: who changes members holds it exclusively, and
// nobody else has to wait.
func (s *Store) SignRosters(ctx context.Context, limit int) (int, error) {
	if s.key == nil {
		return 0, nil
	}
	rows, err := s.pool.Query(ctx, sqlRostersDue, limit)
	var due []int64
	if err == nil {
		due, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	for _, community := range due {
		locks := lockSet{}
		locks.shared(communityLock(community))
		err = errors.Join(err, s.transact(ctx, locks, func(x *change) error {
			tag, err := x.conn.Exec(ctx, sqlTakeRoster, community)
			if err != nil || tag.RowsAffected() == 0 {
				return err
			}
			switch err := x.enter(ctx, community); {
			case errors.Is(err, ErrNoCommunity):
				return nil // it is being deleted
			case err != nil:
				return err
			}
			list, err := x.readRoster(ctx, x.listed(maxListed))
			if err != nil {
				return err
			}
			x.draftRoster(list)
			return nil
		}))
	}
	if err != nil {
		return 0, fmt.Errorf("sign rosters: %w", err)
	}
	return len(due), nil
}
