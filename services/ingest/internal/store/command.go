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

// Statements of commands.
const (
	// By event_ids_pkey and commands_pkey: those that were carried out, whether they are stored or only remembered.
	sqlProcessed = `
SELECT q.n
FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS q (community_id, id, n)
WHERE EXISTS (SELECT FROM ingest.event_ids i WHERE i.community_id = q.community_id AND i.id = q.id)
    OR EXISTS (SELECT FROM ingest.commands c WHERE c.community_id = q.community_id AND c.id = q.id)`

	// Conflicts on commands_pkey only with a row that has expired and was not swept.
	sqlRememberCommand = `
INSERT INTO ingest.commands (community_id, id, expires_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`

	// By commands_expiry and commands_pkey.
	sqlForgetCommands = `
DELETE FROM ingest.commands c
USING (
    SELECT community_id, id FROM ingest.commands
    WHERE expires_at < $1 ORDER BY expires_at LIMIT $2
    FOR UPDATE SKIP LOCKED) AS q
WHERE c.community_id = q.community_id AND c.id = q.id`

	// By communities_pkey.
	sqlRaiseCommunity = `
UPDATE ingest.communities SET acl_version = acl_version + 1 WHERE id = $1 RETURNING acl_version`
)

// change is a transaction as whoever changes a community or a channel sees it: it is held exclusively, what is read
// through conn is true until the commit, and what the relay signs because of the change becomes durable with it.
// A change of one community lives on one goroutine.
type change struct {
	*transaction
	conn      *pgx.Conn
	community int64
	drafts    []draft
	raised    bool     // the community has its new access version
	roster    bool     // the list of members has to be signed anew
	left      []string // channels whose lists of members have to be, as far as there is room

	admittedBy *nostr.PubKey // the owner of an agent that expel removed and that may use the community all the same
}

// execute carries out a command. It decides first and changes afterwards: a verdict that does not accept must leave
// nothing changed.
func (x *change) execute(ctx context.Context, e *entry) (policy.Verdict, error) {
	switch asks := e.Command.Asks.(type) {
	case *policy.AddMember:
		return x.addMember(ctx, e, asks)
	case *policy.RemoveMember:
		return x.removeMember(ctx, e, asks)
	case *policy.ChangeRole:
		return x.changeRole(ctx, e, asks)
	case *policy.SetProfile:
		return x.setProfile(ctx, e, asks)
	case *policy.JoinRelay:
		return x.joinRelay(ctx, e, asks)
	case *policy.LeaveRelay:
		return x.leaveRelay(ctx, e, asks)
	case *policy.CreateChannel:
		return x.createChannel(ctx, e, asks)
	case *policy.EditChannel:
		return x.editChannel(ctx, e, asks)
	case *policy.DeleteChannel:
		return x.deleteChannel(ctx, e, asks)
	case *policy.DeleteEvent:
		return x.deleteEvent(ctx, e, asks)
	case *policy.PutUser:
		return x.putUser(ctx, e, asks)
	case *policy.RemoveUser:
		return x.removeUser(ctx, e, asks)
	case *policy.ChannelInvite:
		return x.inviteToChannel(ctx, e, asks)
	case *policy.JoinChannel:
		return x.joinChannel(ctx, e, asks)
	case *policy.LeaveChannel:
		return x.leaveChannel(ctx, e, asks)
	case *policy.OpenConversation, *policy.AddToConversation:
		return x.openConversation(ctx, e)
	case *policy.HideConversation:
		return x.hideConversation(ctx, e, asks)
	case *policy.Ban:
		return x.banByCommand(ctx, e, asks)
	case *policy.Unban:
		return x.unbanByCommand(ctx, e, asks)
	case *policy.Timeout:
		return x.timeOutByCommand(ctx, e, asks)
	case *policy.Untimeout:
		return x.untimeoutByCommand(ctx, e, asks)
	case *policy.ResolveReport:
		return x.resolveReport(ctx, e, asks)
	}
	return policy.Verdict{}, fmt.Errorf("command of kind %d cannot be carried out", e.Event.Kind)
}

// execute carries out the accepted commands of a batch, one after the other, and signs what follows from them, and from
// requests to vanish.
func (t *transaction) execute(ctx context.Context, conn *pgx.Conn) error {
	if err := errors.Join(t.rejoin(ctx, conn), t.recall(ctx, conn)); err != nil {
		return err
	}
	for _, e := range t.accepted() {
		if e.Vanish != nil {
			if err := t.forget(ctx, conn, e); err != nil {
				return err
			}
		}
		if e.Command == nil {
			continue
		}
		if e.Command.Signs && t.key == nil {
			e.verdict = policy.NoKey
			continue
		}
		x := &change{transaction: t, conn: conn, community: e.Community}
		if _, joins := e.Command.Asks.(*policy.JoinRelay); e.doomed && !joins {
			switch hopeless, err := x.isHopeless(ctx, e); {
			case err != nil:
				return err
			case !hopeless:
				return errMoved // since then; the community is not held as it would have to be
			}
		}
		verdict, err := x.execute(ctx, e)
		if err != nil {
			return fmt.Errorf("carry out kind %d: %w", e.Event.Kind, err)
		}
		e.verdict, e.done = verdict, verdict.Accepted()
		if !e.done {
			continue
		}
		e.channel = t.state.Channels[e.ChannelKey()]
		if err := x.sign(ctx, e.Traceparent, e.Command.FollowUps); err != nil {
			return err
		}
	}
	return nil
}

// exec runs a statement whose result says nothing.
func (x *change) exec(ctx context.Context, what, statement string, args ...any) error {
	if _, err := x.conn.Exec(ctx, statement, args...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// raise gives the community a new access version, once in a change. What is committed from now on is for those only
// who may read by that version.
func (x *change) raise(ctx context.Context) error {
	if x.raised {
		return nil
	}
	x.raised = true
	var version int64
	err := x.conn.QueryRow(ctx, sqlRaiseCommunity, x.community).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNoCommunity
	}
	if err != nil {
		return fmt.Errorf("raise access version: %w", err)
	}
	c := x.state.Communities[x.community]
	c.ACLVersion = uint64(version)
	x.state.Communities[x.community] = c
	return nil
}

// transact runs fn in a transaction that holds locks, commits what it did together with what the relay signs because
// of it, and passes that on. fn enters one community before it changes anything.
//
// Changes wait for each other's locks, each with a connection in its hand, so only some of the pool's are theirs: batches
// always find one.
func (s *Store) transact(ctx context.Context, locks lockSet, fn func(x *change) error) error {
	if err := s.changes.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait for other changes: %w", err)
	}
	defer s.changes.Release(1)
	var row *Row
	var revoked []Revocation
	err := s.retry(ctx, func(conn *pgx.Conn) error {
		t := s.newTransaction(nil)
		b := &pgx.Batch{}
		t.begin(b, locks)
		if err := conn.SendBatch(ctx, b).Close(); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		x := &change{transaction: t, conn: conn}
		if err := fn(x); err != nil {
			return err
		}
		if err := x.sign(ctx, "", policy.FollowUpBytes); err != nil {
			return err
		}
		if err := t.claim(ctx, conn); err != nil {
			return err
		}
		err := t.write(ctx, conn)
		row, revoked = t.row, t.revocations()
		return err
	})
	if err == nil {
		s.tell(ctx, revoked)
	}
	if err == nil && row != nil && s.publish != nil {
		s.publish(ctx, row)
	}
	return err
}

// enter reads the state of a community that the transaction holds, or has just made. One that does not exist has
// no members, so nobody has rights in it. One that is being deleted is entered by nobody (ErrNoCommunity): no row may be
// added to it.
func (x *change) enter(ctx context.Context, community int64) error {
	x.community = community
	b := &pgx.Batch{}
	(&question{communities: ordered[int64]{list: []int64{community}}}).queue(b, &x.state, false)
	if err := x.conn.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("read community: %w", err)
	}
	if x.state.Communities[community].Deleting {
		return ErrNoCommunity
	}
	return nil
}

// changeCommunity is administer for those who use the community: one that is archived does not exist for them.
func (s *Store) changeCommunity(ctx context.Context, community int64, fn func(x *change) error) (uint64, error) {
	return s.administer(ctx, community, lockSet{}, func(x *change) error {
		if x.state.Communities[community].Archived {
			return ErrNoCommunity
		}
		return fn(x)
	})
}

// administer runs fn while no batch of the community is between its reading and its commit, holding further locks. It
// returns the community's access version after it.
func (s *Store) administer(ctx context.Context, community int64, locks lockSet, fn func(x *change) error) (uint64, error) {
	locks.exclusive(communityLock(community))
	var version uint64
	err := s.transact(ctx, locks, func(x *change) error {
		if err := x.enter(ctx, community); err != nil {
			return err
		}
		err := fn(x)
		version = x.state.Communities[community].ACLVersion
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("change community: %w", err)
	}
	return version, nil
}

// ForgetCommands forgets up to limit commands that had expired before a moment, and returns how many.
func (s *Store) ForgetCommands(ctx context.Context, before time.Time, limit int) (int, error) {
	tag, err := s.pool.Exec(ctx, sqlForgetCommands, before, limit)
	if err != nil {
		return 0, fmt.Errorf("forget commands: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// queueRemember remembers a command that is not stored, for as long as it could be sent again.
func queueRemember(b *pgx.Batch, e *entry) {
	expires := time.Unix(e.Event.CreatedAt, 0).Add(policy.CommandMemory)
	b.Queue(sqlRememberCommand, e.Community, e.Event.ID[:], expires)
}
