-- Conversations (direct messages): channels of type dm, one for each set of participants, which each of them may hide
-- from its own list. Written by ingest.

-- +goose Up

-- participants is the SHA-256 of the participants' keys, ascending: who is in a conversation never changes, so it names it.
-- hidden_at is when a member hid it, NULL while it is shown.
ALTER TABLE ingest.channels
    ADD COLUMN participants bytea CHECK (octet_length(participants) = 32),
    ADD CONSTRAINT channels_dm_check CHECK ((participants IS NOT NULL) = (type = 'dm'));
CREATE UNIQUE INDEX channels_participants ON ingest.channels (community_id, participants) WHERE participants IS NOT NULL;
ALTER TABLE ingest.channel_members ADD COLUMN hidden_at timestamptz;
CREATE INDEX channel_members_hidden ON ingest.channel_members (community_id, pubkey) WHERE hidden_at IS NOT NULL;

-- +goose Down
DELETE FROM ingest.channels WHERE type = 'dm';
DROP INDEX ingest.channel_members_hidden;
ALTER TABLE ingest.channel_members DROP COLUMN hidden_at;
DROP INDEX ingest.channels_participants;
ALTER TABLE ingest.channels DROP CONSTRAINT channels_dm_check, DROP COLUMN participants;
