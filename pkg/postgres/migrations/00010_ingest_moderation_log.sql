-- Bans and timeouts that end by themselves, what moderators decided about reports (NIP-56), and the log of everything
-- that moderators did. Written by ingest, read by search.

-- +goose Up

-- A ban is over when expires_at has passed, whether or not the row is still there. A release from before takes it for
-- one without an end until the row goes.
ALTER TABLE ingest.banned_pubkeys ADD COLUMN expires_at timestamptz;
CREATE INDEX banned_pubkeys_expiry ON ingest.banned_pubkeys (expires_at) WHERE expires_at IS NOT NULL;

-- Who may read and not write for a while.
CREATE TABLE ingest.timeouts (
    community_id bigint      NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    pubkey       bytea       NOT NULL CHECK (octet_length(pubkey) = 32),
    reason       text        NOT NULL DEFAULT '',
    decided_by   bytea       NOT NULL CHECK (octet_length(decided_by) = 32),
    decided_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    PRIMARY KEY (community_id, pubkey)
);
CREATE INDEX timeouts_expiry ON ingest.timeouts (expires_at);

-- What became of a report; one without a row is open, unless its target was decided on (decided_reports).
CREATE TABLE ingest.report_decisions (
    community_id bigint      NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    report_id    bytea       NOT NULL CHECK (octet_length(report_id) = 32),
    status       text        NOT NULL CHECK (status IN ('resolved', 'dismissed', 'escalated')),
    action       text        NOT NULL,
    decided_by   bytea       NOT NULL CHECK (octet_length(decided_by) = 32),
    decided_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (community_id, report_id)
);

-- Rows are only ever added. command_id is the event that asked for it, NULL for a call of the management API (NIP-86);
-- pubkey, event_id, report_id and subject (a kind, a network) are what it was about.
CREATE TABLE ingest.moderation_actions (
    community_id bigint      NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    id           bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    action       text        NOT NULL,
    actor        bytea       NOT NULL CHECK (octet_length(actor) = 32),
    command_id   bytea       CHECK (octet_length(command_id) = 32),
    pubkey       bytea       CHECK (octet_length(pubkey) = 32),
    event_id     bytea       CHECK (octet_length(event_id) = 32),
    report_id    bytea       CHECK (octet_length(report_id) = 32),
    subject      text        NOT NULL DEFAULT '',
    reason       text        NOT NULL DEFAULT '',
    expires_at   timestamptz,
    decided_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (community_id, id)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON ingest.timeouts, ingest.report_decisions TO apiary_ingest;
GRANT SELECT, INSERT ON ingest.moderation_actions TO apiary_ingest;
GRANT SELECT ON ingest.timeouts, ingest.report_decisions, ingest.moderation_actions TO apiary_search;

-- +goose Down
DROP TABLE ingest.moderation_actions;
DROP TABLE ingest.report_decisions;
DROP TABLE ingest.timeouts;
ALTER TABLE ingest.banned_pubkeys DROP COLUMN expires_at;
