-- What messages of channels say about each other: reactions (NIP-25) and threads (NIP-10). The rows come and go
-- with the events that they are read from. Written by ingest, read by search.

-- +goose Up

-- One active reaction of an author to an event with an emoji. id is the event that made it.
CREATE TABLE ingest.reactions (
    community_id bigint NOT NULL,
    target_id    bytea  NOT NULL,
    pubkey       bytea  NOT NULL,
    emoji        bytea  NOT NULL,
    id           bytea  NOT NULL,
    PRIMARY KEY (community_id, target_id, pubkey, emoji)
);

-- One row for each reply. depth is 1 for a reply to the root.
CREATE TABLE ingest.replies (
    community_id bigint   NOT NULL,
    id           bytea    NOT NULL,
    root_id      bytea    NOT NULL,
    parent_id    bytea    NOT NULL,
    depth        smallint NOT NULL CHECK (depth > 0),
    broadcast    boolean  NOT NULL,
    pubkey       bytea    NOT NULL,
    created_at   bigint   NOT NULL,
    PRIMARY KEY (community_id, id)
);
CREATE INDEX replies_root ON ingest.replies (community_id, root_id, created_at, id);

-- How many replies an event has: direct ones, and, if it is the root of a thread, all of the thread. An event that
-- never had any has no row. summary_at is created_at of the last summary that the relay has signed.
CREATE TABLE ingest.reply_counts (
    community_id bigint  NOT NULL,
    id           bytea   NOT NULL,
    replies      integer NOT NULL CHECK (replies >= 0),
    descendants  integer NOT NULL CHECK (descendants >= 0),
    summary_at   bigint  NOT NULL,
    PRIMARY KEY (community_id, id)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON ingest.reactions, ingest.replies, ingest.reply_counts TO apiary_ingest;
GRANT SELECT ON ingest.reactions, ingest.replies, ingest.reply_counts TO apiary_search;

-- +goose Down
DROP TABLE ingest.reply_counts;
DROP TABLE ingest.replies;
DROP TABLE ingest.reactions;
