-- Whose agents keys are (NIP-OA), and who may use a community because of it. Written by ingest, read by search.

-- +goose Up

-- What a closed community does with agents of its members: admit them, or refuse those that are no members themselves.
ALTER TABLE ingest.communities
    ADD COLUMN agents text NOT NULL DEFAULT 'admit' CHECK (agents IN ('admit', 'refuse'));

-- A row is what two keys have shown: the owner by its signature, the agent by authenticating with it. The first owner of
-- a key stays its owner. until is when the attestation ends, NULL for never, -infinity once that was noticed; it ends
-- what the owner gives, not what the owner answers for. No owner is an agent, and no agent an owner: ingest sees to it.
CREATE TABLE ingest.agents (
    community_id bigint      NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    pubkey       bytea       NOT NULL CHECK (octet_length(pubkey) = 32),
    owner        bytea       NOT NULL CHECK (octet_length(owner) = 32 AND owner <> pubkey),
    until        timestamptz,
    attested_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (community_id, pubkey)
);
-- By both columns the planner would also look for an agent by its key, as long as it has no statistics.
CREATE INDEX agents_owner ON ingest.agents (owner) INCLUDE (community_id);
CREATE INDEX agents_until ON ingest.agents (until) WHERE until > '-infinity';

-- Who has a right or lacks one: by itself, or with its owner. A key can be there twice. OFFSET 0 makes the planner look for
-- the agent first and then for its owner, one row each, whatever it knows of the tables.

-- Who may use a closed community: its members, and agents of members.
CREATE VIEW ingest.admitted AS
SELECT m.community_id, m.pubkey FROM ingest.community_members m
UNION ALL
SELECT a.community_id, a.pubkey FROM ingest.agents a
WHERE (a.until IS NULL OR a.until > now())
    AND EXISTS (SELECT FROM ingest.communities c WHERE c.id = a.community_id AND c.agents = 'admit' OFFSET 0)
    AND EXISTS (SELECT FROM ingest.community_members m
        WHERE m.community_id = a.community_id AND m.pubkey = a.owner OFFSET 0);

-- Who is banned.
CREATE VIEW ingest.barred AS
SELECT b.community_id, b.pubkey FROM ingest.banned_pubkeys b
WHERE b.expires_at IS NULL OR b.expires_at > now()
UNION ALL
SELECT a.community_id, a.pubkey FROM ingest.agents a
WHERE EXISTS (SELECT FROM ingest.banned_pubkeys b
    WHERE b.community_id = a.community_id AND b.pubkey = a.owner AND (b.expires_at IS NULL OR b.expires_at > now()) OFFSET 0);

-- Who is timed out, and until when.
CREATE VIEW ingest.silenced AS
SELECT t.community_id, t.pubkey, t.expires_at FROM ingest.timeouts t
WHERE t.expires_at > now()
UNION ALL
SELECT a.community_id, a.pubkey, t.expires_at FROM ingest.agents a
CROSS JOIN LATERAL (
    SELECT t.expires_at FROM ingest.timeouts t
    WHERE t.community_id = a.community_id AND t.pubkey = a.owner AND t.expires_at > now() OFFSET 0
) AS t;

GRANT SELECT, INSERT, UPDATE, DELETE ON ingest.agents TO apiary_ingest;
GRANT SELECT ON ingest.admitted, ingest.barred, ingest.silenced TO apiary_ingest;
GRANT SELECT ON ingest.agents, ingest.admitted, ingest.barred TO apiary_search;

-- +goose Down
DROP VIEW ingest.silenced;
DROP VIEW ingest.barred;
DROP VIEW ingest.admitted;
DROP TABLE ingest.agents;
ALTER TABLE ingest.communities DROP COLUMN agents;
