-- What channels have besides members and access (NIP-29): types, topics, an end when nobody writes, invite codes, and
-- what is left to be done for them in the background. Written by ingest; search reads the channels alone.

-- +goose Up

-- snapshot_due says that what the relay signs of the channel (39000-39003) is older than the row. It is true by default,
-- so that channels from before, and those that a release from before makes, are signed soon.
ALTER TABLE ingest.channels
    ADD COLUMN banner            text        NOT NULL DEFAULT '',
    ADD COLUMN type              text        NOT NULL DEFAULT 'stream' CHECK (type IN ('stream', 'forum', 'dm', 'workflow')),
    ADD COLUMN topic             text        NOT NULL DEFAULT '',
    ADD COLUMN purpose           text        NOT NULL DEFAULT '',
    ADD COLUMN ttl_seconds       integer     CHECK (ttl_seconds > 0),
    ADD COLUMN ttl_deadline      timestamptz CHECK ((ttl_deadline IS NULL) = (ttl_seconds IS NULL)),
    ADD COLUMN previous_required boolean     NOT NULL DEFAULT false,
    ADD COLUMN snapshot_due      boolean     NOT NULL DEFAULT true;
CREATE INDEX channels_snapshot_due ON ingest.channels (community_id, id) WHERE snapshot_due;
CREATE INDEX channels_ttl_deadline ON ingest.channels (ttl_deadline) WHERE archived_at IS NULL AND ttl_deadline IS NOT NULL;

-- The primary key begins with the community as well, and as long as there are no statistics the planner took either index
-- to find a channel by its number.
ALTER TABLE ingest.channels
    DROP CONSTRAINT channels_community_id_h_key,
    ADD CONSTRAINT channels_h_key UNIQUE (h, community_id);

-- Fan-out keeps who may read a channel by the channel's version, so under an id that was used before it must not begin again
-- where what is known of the deleted channel still holds. Each new channel begins above all the versions that one
-- before it can reach.
CREATE SEQUENCE ingest.channel_versions AS bigint INCREMENT BY 268435456 START WITH 268435456;
ALTER TABLE ingest.channels ALTER COLUMN acl_version SET DEFAULT nextval('ingest.channel_versions');

-- The code itself is not kept: whoever reads this table cannot join with it.
CREATE TABLE ingest.channel_invites (
    community_id bigint      NOT NULL,
    channel_id   bigint      NOT NULL,
    code_hash    bytea       NOT NULL CHECK (octet_length(code_hash) = 32),
    created_by   bytea       NOT NULL CHECK (octet_length(created_by) = 32),
    expires_at   timestamptz NOT NULL,
    PRIMARY KEY (community_id, channel_id, code_hash),
    FOREIGN KEY (community_id, channel_id) REFERENCES ingest.channels (community_id, id) ON DELETE CASCADE
);
CREATE INDEX channel_invites_expiry ON ingest.channel_invites (expires_at);

-- Channels that were deleted and whose events are still there. Nobody can read them: their channel does not exist.
CREATE TABLE ingest.deleted_channels (
    community_id bigint      NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    channel_id   bigint      NOT NULL,
    deleted_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (community_id, channel_id)
);
CREATE INDEX deleted_channels_time ON ingest.deleted_channels (deleted_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON ingest.channel_invites, ingest.deleted_channels TO apiary_ingest;
GRANT USAGE ON ingest.channel_versions TO apiary_ingest;

-- +goose Down
DROP TABLE ingest.deleted_channels;
DROP TABLE ingest.channel_invites;
ALTER TABLE ingest.channels
    ALTER COLUMN acl_version SET DEFAULT 1,
    DROP CONSTRAINT channels_h_key,
    ADD CONSTRAINT channels_community_id_h_key UNIQUE (community_id, h),
    DROP COLUMN snapshot_due,
    DROP COLUMN previous_required,
    DROP COLUMN ttl_deadline,
    DROP COLUMN ttl_seconds,
    DROP COLUMN purpose,
    DROP COLUMN topic,
    DROP COLUMN type,
    DROP COLUMN banner;
DROP SEQUENCE ingest.channel_versions;
