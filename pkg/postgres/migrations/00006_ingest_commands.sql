-- Commands that were carried out and are not stored as events, and invite codes (NIP-43). Written by ingest alone.

-- +goose Up

-- A command that is sent again, by the client or by a gateway whose stream broke, is not carried out again. Rows go
-- once the command is too old to be accepted anyway.
CREATE TABLE ingest.commands (
    community_id bigint      NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    id           bytea       NOT NULL CHECK (octet_length(id) = 32),
    expires_at   timestamptz NOT NULL,
    PRIMARY KEY (community_id, id)
);
CREATE INDEX commands_expiry ON ingest.commands (expires_at);

-- The code itself is not kept: whoever reads this table cannot join with it. max_uses is NULL for any number.
CREATE TABLE ingest.invites (
    community_id bigint      NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    code_hash    bytea       NOT NULL CHECK (octet_length(code_hash) = 32),
    role         text        NOT NULL CHECK (role IN ('admin', 'member')),
    created_by   bytea       NOT NULL CHECK (octet_length(created_by) = 32),
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    max_uses     integer     CHECK (max_uses > 0),
    uses         integer     NOT NULL DEFAULT 0 CHECK (max_uses IS NULL OR uses <= max_uses),
    PRIMARY KEY (community_id, code_hash)
);
CREATE INDEX invites_expiry ON ingest.invites (expires_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON ingest.commands, ingest.invites TO apiary_ingest;

-- +goose Down
DROP TABLE ingest.invites;
DROP TABLE ingest.commands;
