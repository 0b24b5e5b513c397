-- What a community refuses: keys, events, kinds, networks (NIP-86), whoever asked to vanish (NIP-62), and
-- HTTP tokens that were used (NIP-98). Written by ingest, read by search.

-- +goose Up
ALTER TABLE ingest.communities ADD COLUMN min_pow smallint NOT NULL DEFAULT 0 CHECK (min_pow BETWEEN 0 AND 64);

CREATE TABLE ingest.banned_pubkeys (
    community_id bigint      NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    pubkey       bytea       NOT NULL CHECK (octet_length(pubkey) = 32),
    reason       text        NOT NULL DEFAULT '',
    decided_by   bytea       NOT NULL,
    decided_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (community_id, pubkey)
);

-- Unlike a tombstone, which binds only its author, a ban of an event binds everybody.
CREATE TABLE ingest.banned_events (
    community_id bigint      NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    id           bytea       NOT NULL CHECK (octet_length(id) = 32),
    reason       text        NOT NULL DEFAULT '',
    decided_by   bytea       NOT NULL,
    decided_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (community_id, id)
);

-- The reports (NIP-56) are events; this is what moderators have looked at.
CREATE TABLE ingest.decided_reports (
    community_id bigint      NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    target_id    bytea       NOT NULL CHECK (octet_length(target_id) = 32),
    decided_by   bytea       NOT NULL,
    decided_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (community_id, target_id)
);

-- With any row, the community takes only these kinds.
CREATE TABLE ingest.allowed_kinds (
    community_id bigint  NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    kind         integer NOT NULL CHECK (kind BETWEEN 0 AND 65535),
    PRIMARY KEY (community_id, kind)
);

CREATE TABLE ingest.blocked_networks (
    community_id bigint      NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    network      cidr        NOT NULL,
    reason       text        NOT NULL DEFAULT '',
    decided_by   bytea       NOT NULL,
    decided_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (community_id, network)
);

-- NIP-62: nothing of the key with created_at up to until is stored, or comes back.
CREATE TABLE ingest.vanished (
    community_id bigint NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    pubkey       bytea  NOT NULL CHECK (octet_length(pubkey) = 32),
    until        bigint NOT NULL,
    request_id   bytea  NOT NULL,
    PRIMARY KEY (community_id, pubkey)
);

CREATE TABLE ingest.http_tokens (
    community_id bigint      NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    event_id     bytea       NOT NULL CHECK (octet_length(event_id) = 32),
    expires_at   timestamptz NOT NULL,
    PRIMARY KEY (community_id, event_id)
);
CREATE INDEX http_tokens_expiry ON ingest.http_tokens (expires_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON
    ingest.banned_pubkeys, ingest.banned_events, ingest.decided_reports, ingest.allowed_kinds,
    ingest.blocked_networks, ingest.vanished, ingest.http_tokens
    TO apiary_ingest;
GRANT SELECT ON
    ingest.banned_pubkeys, ingest.banned_events, ingest.decided_reports, ingest.allowed_kinds,
    ingest.blocked_networks, ingest.vanished
    TO apiary_search;

-- +goose Down
DROP TABLE ingest.http_tokens;
DROP TABLE ingest.vanished;
DROP TABLE ingest.blocked_networks;
DROP TABLE ingest.allowed_kinds;
DROP TABLE ingest.decided_reports;
DROP TABLE ingest.banned_events;
DROP TABLE ingest.banned_pubkeys;
ALTER TABLE ingest.communities DROP COLUMN min_pow;
