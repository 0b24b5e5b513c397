-- Communities as operators manage them: archived ones, deleted ones and what is left of these, hosts that stay taken, and
-- the operators' HTTP tokens. Written by ingest; search reads the communities and their hosts.

-- +goose Up

-- uuid is the name by which clients and operators know a community. An archived community is served to nobody; one that
-- is being deleted is archived for good. A release from before serves both.
ALTER TABLE ingest.communities
    ADD COLUMN uuid        uuid        NOT NULL DEFAULT gen_random_uuid(),
    ADD COLUMN archived_at timestamptz,
    ADD COLUMN deleting_at timestamptz,
    ADD CONSTRAINT communities_uuid_key UNIQUE (uuid),
    ADD CONSTRAINT communities_deleting_check CHECK (deleting_at IS NULL OR archived_at IS NOT NULL);

-- A host outlives its community: without one it is taken by nobody, and nobody can have it until an operator lets it go.
ALTER TABLE ingest.community_hosts
    ALTER COLUMN community_id DROP NOT NULL,
    DROP CONSTRAINT community_hosts_community_id_fkey,
    ADD CONSTRAINT community_hosts_community_id_fkey
        FOREIGN KEY (community_id) REFERENCES ingest.communities (id) ON DELETE SET NULL;

-- How many communities somebody owns is limited.
CREATE INDEX community_members_owner ON ingest.community_members (pubkey) WHERE role = 'owner';

-- One row for each deletion that was asked for; it stays, so that who asks again hears what became of it. The community
-- itself goes last, so community_id has nothing to refer to. outbox_done and outbox_end are how far the outbox has been
-- looked through, and how far it must be. drained_by is the replica that removes the rows, until lease_until.
CREATE TABLE ingest.community_deletions (
    request_id   text        PRIMARY KEY CHECK (octet_length(request_id) BETWEEN 1 AND 128),
    community_id bigint      NOT NULL UNIQUE,
    uuid         uuid        NOT NULL,
    owner        bytea       NOT NULL CHECK (octet_length(owner) = 32),
    hosts        text[]      NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    outbox_done  bigint      NOT NULL DEFAULT 0,
    outbox_end   bigint      NOT NULL,
    drained_by   text        NOT NULL DEFAULT '',
    lease_until  timestamptz NOT NULL DEFAULT '-infinity',
    removed      bigint      NOT NULL DEFAULT 0,
    finished_at  timestamptz
);
CREATE INDEX community_deletions_open ON ingest.community_deletions (requested_at) WHERE finished_at IS NULL;

-- NIP-98 tokens that operators have used: they belong to no community.
CREATE TABLE ingest.operator_tokens (
    event_id   bytea       PRIMARY KEY CHECK (octet_length(event_id) = 32),
    expires_at timestamptz NOT NULL
);
CREATE INDEX operator_tokens_expiry ON ingest.operator_tokens (expires_at);

-- Every schema but ingest's own that keeps something of a community has such a function, and lends it to ingest, which
-- removes communities: it removes up to so many rows of one, and returns how many. A test finds schemas without.
-- +goose StatementBegin
CREATE FUNCTION search.forget_community(community bigint, most integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (
        DELETE FROM search.documents
        WHERE community_id = $1 AND id = ANY (ARRAY(SELECT d.id FROM search.documents d WHERE d.community_id = $1 LIMIT $2))
        RETURNING 1)
    SELECT count(*)::integer FROM gone
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION search.forget_community(bigint, integer) FROM PUBLIC;
GRANT USAGE ON SCHEMA search TO apiary_ingest;
GRANT EXECUTE ON FUNCTION search.forget_community(bigint, integer) TO apiary_ingest;

GRANT SELECT, INSERT, UPDATE, DELETE ON ingest.community_deletions, ingest.operator_tokens TO apiary_ingest;
-- Rows of the log go with their community, and only then.
GRANT DELETE ON ingest.moderation_actions TO apiary_ingest;

-- +goose Down
REVOKE DELETE ON ingest.moderation_actions FROM apiary_ingest;
DROP FUNCTION search.forget_community(bigint, integer);
REVOKE USAGE ON SCHEMA search FROM apiary_ingest;
DROP TABLE ingest.operator_tokens, ingest.community_deletions;
DROP INDEX ingest.community_members_owner;
DELETE FROM ingest.community_hosts WHERE community_id IS NULL;
ALTER TABLE ingest.community_hosts
    DROP CONSTRAINT community_hosts_community_id_fkey,
    ADD CONSTRAINT community_hosts_community_id_fkey
        FOREIGN KEY (community_id) REFERENCES ingest.communities (id) ON DELETE CASCADE,
    ALTER COLUMN community_id SET NOT NULL;
ALTER TABLE ingest.communities DROP COLUMN uuid, DROP COLUMN archived_at, DROP COLUMN deleting_at;
