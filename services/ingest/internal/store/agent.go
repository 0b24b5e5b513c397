package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Statements about agents (NIP-OA). Whoever changes something, but the sweep, holds the community exclusively.
const (
	// By communities_pkey, community_members_pkey, banned_pubkeys_pkey, agents_pkey and agents_owner: what decides about
	// an attestation, and what is known of the agent. An owner's agents are counted to the limit.
	sqlAgency = `
SELECT c.acl_version, c.access = 'closed', c.agents = 'admit',
    EXISTS (SELECT FROM ingest.barred b WHERE b.community_id = c.id AND b.pubkey = $2)
        OR EXISTS (SELECT FROM ingest.barred b WHERE b.community_id = c.id AND b.pubkey = $3),
    EXISTS (SELECT FROM ingest.community_members m WHERE m.community_id = c.id AND m.pubkey = $3),
    known.owner, known.owner = $3 AND (known.until IS NULL OR coalesce(known.until >= $4, false)),
    EXISTS (SELECT FROM ingest.agents a WHERE a.community_id = c.id AND a.pubkey = $3)
        OR EXISTS (SELECT FROM ingest.agents a WHERE a.owner = $2 AND a.community_id = c.id),
    (SELECT count(*) FROM (SELECT FROM ingest.agents a WHERE a.owner = $3 AND a.community_id = c.id LIMIT $5) AS counted)
FROM ingest.communities c
LEFT JOIN ingest.agents known ON known.community_id = c.id AND known.pubkey = $2
WHERE c.id = $1 AND c.archived_at IS NULL`

	// Conflicts on agents_pkey with a row of the same owner: of all that was shown, what lasts longest counts, since the
	// agent could show that again.
	sqlAttest = `
INSERT INTO ingest.agents (community_id, pubkey, owner, until) VALUES ($1, $2, $3, $4)
ON CONFLICT (community_id, pubkey) DO UPDATE
SET until = CASE WHEN agents.until IS NULL OR excluded.until IS NULL THEN NULL ELSE greatest(agents.until, excluded.until) END`

	// By agents_owner and community_members_pkey: an owner's agents, and which of them are members themselves.
	sqlAgentsOf = `
SELECT a.pubkey, EXISTS (SELECT FROM ingest.community_members m WHERE m.community_id = $1 AND m.pubkey = a.pubkey OFFSET 0)
FROM ingest.agents a WHERE a.owner = $2 AND a.community_id = $1
ORDER BY a.pubkey`

	// By agents_owner and community_members_pkey: what of an owner's agents has the most rights by itself.
	sqlAgentRole = `
SELECT m.role FROM ingest.agents a
JOIN ingest.community_members m ON m.community_id = a.community_id AND m.pubkey = a.pubkey AND m.role IN ('owner', 'admin')
WHERE a.owner = $2 AND a.community_id = $1
ORDER BY m.role DESC LIMIT 1`

	// By agents_until.
	sqlEndedAttestations = `
SELECT community_id FROM ingest.agents WHERE until > '-infinity' AND until <= now()
GROUP BY community_id ORDER BY min(until) LIMIT $1`

	// By agents_until and agents_pkey.
	sqlEndAttestations = `
UPDATE ingest.agents a SET until = '-infinity'
FROM (
    SELECT pubkey FROM ingest.agents
    WHERE until > '-infinity' AND until <= now() AND community_id = $1 ORDER BY until LIMIT $2
) AS q
WHERE a.community_id = $1 AND a.pubkey = q.pubkey
RETURNING a.pubkey`
)

// What an attestation is refused for.
var (
	// ErrNotMember says that the owner is no member of the closed community.
	ErrNotMember = errors.New("the owner is no member")
	// ErrOwned says that the agent has another owner.
	ErrOwned = errors.New("the agent has another owner")
	// ErrAgentOfAgent says that the owner is an agent itself, or that the agent owns others.
	ErrAgentOfAgent = errors.New("an agent cannot own agents")
	// ErrTooManyAgents says that the owner has as many agents as it may have.
	ErrTooManyAgents = errors.New("too many agents")
)

// Attestation is an owner's word that a key is its agent's, which the agent has shown.
type Attestation struct {
	// Community is the tenant.
	Community int64
	// Agent and Owner are the two keys; they differ.
	Agent, Owner nostr.PubKey
	// Until is when it ends, the zero Time for never.
	Until time.Time
}

// agency is what decides about an attestation.
type agency struct {
	version                   uint64
	closed, admits            bool
	barred, member, entangled bool
	owner                     *nostr.PubKey // the agent's, nil if it has none yet
	known                     bool          // for at least as long
	agents                    int           // of the owner, up to the limit
}

func readAgency(ctx context.Context, q querier, a Attestation, most int) (agency, error) {
	var g agency
	var version int64
	var owner []byte
	var known *bool
	err := q.QueryRow(ctx, sqlAgency, a.Community, a.Agent[:], a.Owner[:], endOf(a.Until), most).
		Scan(&version, &g.closed, &g.admits, &g.barred, &g.member, &owner, &known, &g.entangled, &g.agents)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return g, ErrNoCommunity
	case err != nil:
		return g, fmt.Errorf("read whose agent a key is: %w", err)
	}
	g.version, g.known = uint64(version), known != nil && *known
	if owner != nil {
		g.owner = new(nostr.PubKey(owner))
	}
	return g, nil
}

// refuse returns why the attestation is not taken, nil if it is.
func (g *agency) refuse(a Attestation, most int) error {
	switch {
	case g.barred:
		return ErrBanned
	case g.closed && !g.member:
		return ErrNotMember
	case g.owner != nil && *g.owner != a.Owner:
		return ErrOwned
	case g.entangled:
		return ErrAgentOfAgent
	case g.owner == nil && g.agents >= most:
		return ErrTooManyAgents
	}
	return nil
}

// Attest remembers an attestation, and returns the community's access version from which on it counts. most is how many
// agents the owner may have. The error is ErrNoCommunity, ErrBanned, ErrNotMember, ErrOwned, ErrAgentOfAgent or
// ErrTooManyAgents.
//
// It looks before it takes the lock: agents come back much more often than they come, and to be refused must not cost
// others anything.
func (s *Store) Attest(ctx context.Context, a Attestation, most int) (uint64, error) {
	var g agency
	err := s.retry(ctx, func(conn *pgx.Conn) (err error) {
		g, err = readAgency(ctx, conn, a, most)
		return err
	})
	if err == nil {
		err = g.refuse(a, most)
	}
	if err != nil || g.known {
		return g.version, err
	}
	return s.changeCommunity(ctx, a.Community, func(x *change) error { return x.attest(ctx, a, most) })
}

func (x *change) attest(ctx context.Context, a Attestation, most int) error {
	g, err := readAgency(ctx, x.conn, a, most)
	if err == nil {
		err = g.refuse(a, most)
	}
	if err != nil || g.known {
		return err
	}
	if _, err := x.conn.Exec(ctx, sqlAttest, a.Community, a.Agent[:], a.Owner[:], endOf(a.Until)); err != nil {
		return fmt.Errorf("remember attestation: %w", err)
	}
	if !g.closed || !g.admits {
		return nil // it gives nobody access
	}
	return x.raise(ctx)
}

// endOf is the column form of the end of an attestation: NULL for never.
func endOf(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

// agentsOf returns the agents of an owner, and those of them that have nothing but what they have because of it. Attest
// bounds how many there are.
func (x *change) agentsOf(ctx context.Context, owner nostr.PubKey) (all, dependent []nostr.PubKey, err error) {
	rows, err := x.conn.Query(ctx, sqlAgentsOf, x.community, owner[:])
	if err != nil {
		return nil, nil, fmt.Errorf("read agents: %w", err)
	}
	var key []byte
	var member bool
	if _, err := pgx.ForEachRow(rows, []any{&key, &member}, func() error {
		all = append(all, nostr.PubKey(key))
		if !member {
			dependent = append(dependent, nostr.PubKey(key))
		}
		return nil
	}); err != nil {
		return nil, nil, fmt.Errorf("read agents: %w", err)
	}
	return all, dependent, nil
}

func collectKeys(rows pgx.Rows) ([]nostr.PubKey, error) {
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (nostr.PubKey, error) {
		var key []byte
		err := row.Scan(&key)
		return nostr.PubKey(key), err
	})
	if err != nil {
		return nil, fmt.Errorf("read keys of agents: %w", err)
	}
	return keys, nil
}

// EndAttestations notices up to limit attestations that have ended in each of up to limit communities, and gives these a
// new access version: who has kept a decision asks again. It returns how many communities it looked at.
func (s *Store) EndAttestations(ctx context.Context, limit int) (int, error) {
	rows, err := s.pool.Query(ctx, sqlEndedAttestations, limit)
	if err != nil {
		return 0, fmt.Errorf("find ended attestations: %w", err)
	}
	communities, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, fmt.Errorf("find ended attestations: %w", err)
	}
	for _, community := range communities {
		if _, err := s.administer(ctx, community, lockSet{}, func(x *change) error {
			rows, err := x.conn.Query(ctx, sqlEndAttestations, community, limit)
			if err != nil {
				return err
			}
			ended, err := collectKeys(rows)
			if err != nil || len(ended) == 0 || !x.state.Communities[community].Closed {
				return err
			}
			for _, agent := range ended {
				x.revoke(agent)
			}
			return x.raise(ctx)
		}); err != nil && !errors.Is(err, ErrNoCommunity) { // which is being deleted
			return 0, fmt.Errorf("end attestations: %w", err)
		}
	}
	return len(communities), nil
}
