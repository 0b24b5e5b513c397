-- Reminders that wait for their time (NIP-ER), lists of members that are signed a moment after they change, and an end for
-- the log of moderation. Written by ingest.

-- +goose Up

-- One row for each stored reminder whose time is to come; who passes it on removes the row in the same transaction. It
-- names an event that may be gone, and then means nothing.
CREATE TABLE ingest.reminders (
    community_id bigint NOT NULL,
    due_at       bigint NOT NULL,
    id           bytea  NOT NULL CHECK (octet_length(id) = 32),
    created_at   bigint NOT NULL,
    PRIMARY KEY (community_id, due_at, id)
);
CREATE INDEX reminders_due ON ingest.reminders (due_at);

-- members_due_at is from when on the list of members is to be signed anew; NULL while it is as it should be. Long lists
-- are signed once for all that changes in a few seconds.
ALTER TABLE ingest.channels ADD COLUMN members_due_at timestamptz;
CREATE INDEX channels_members_due ON ingest.channels (members_due_at) WHERE members_due_at IS NOT NULL;
ALTER TABLE ingest.communities ADD COLUMN members_due_at timestamptz;
CREATE INDEX communities_members_due ON ingest.communities (members_due_at) WHERE members_due_at IS NOT NULL;

GRANT SELECT, INSERT, DELETE, UPDATE ON ingest.reminders TO apiary_ingest; -- UPDATE to lock rows
-- Old entries go; the comment on the table that rows are only added is no longer true.
GRANT DELETE ON ingest.moderation_actions TO apiary_ingest;

-- +goose Down
REVOKE DELETE ON ingest.moderation_actions FROM apiary_ingest;
ALTER TABLE ingest.communities DROP COLUMN members_due_at;
ALTER TABLE ingest.channels DROP COLUMN members_due_at;
DROP TABLE ingest.reminders;
