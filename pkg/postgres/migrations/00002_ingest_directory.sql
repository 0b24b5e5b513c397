-- Communities, their hosts and members, channels and their members. Written by ingest, read by search.
-- acl_version rises in the transaction that changes who may read; see services/docs/architecture.md.

-- +goose Up
CREATE TABLE ingest.communities (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text        NOT NULL DEFAULT '',
    description text        NOT NULL DEFAULT '',
    icon        text        NOT NULL DEFAULT '',
    access      text        NOT NULL DEFAULT 'closed' CHECK (access IN ('open', 'closed')),
    acl_version bigint      NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL DEFAULT now()
);

-- host is the only key that does not begin with the community: it is how the community is found.
CREATE TABLE ingest.community_hosts (
    host         text    PRIMARY KEY CHECK (host = lower(host) AND host <> ''),
    community_id bigint  NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    is_primary   boolean NOT NULL DEFAULT false
);
CREATE INDEX community_hosts_community ON ingest.community_hosts (community_id);

CREATE TABLE ingest.community_members (
    community_id bigint      NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    pubkey       bytea       NOT NULL CHECK (octet_length(pubkey) = 32),
    role         text        NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
    added_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (community_id, pubkey)
);

-- h is the NIP-29 group id, unique only inside its community; id is the small key that events carry.
CREATE TABLE ingest.channels (
    community_id bigint      NOT NULL REFERENCES ingest.communities (id) ON DELETE CASCADE,
    id           bigint      GENERATED ALWAYS AS IDENTITY,
    h            text        COLLATE "C" NOT NULL CHECK (h ~ '^[A-Za-z0-9_-]{1,64}$'),
    name         text        NOT NULL DEFAULT '',
    about        text        NOT NULL DEFAULT '',
    picture      text        NOT NULL DEFAULT '',
    visibility   text        NOT NULL DEFAULT 'open' CHECK (visibility IN ('open', 'private')),
    acl_version  bigint      NOT NULL DEFAULT 1,
    created_by   bytea       NOT NULL CHECK (octet_length(created_by) = 32),
    created_at   timestamptz NOT NULL DEFAULT now(),
    archived_at  timestamptz,
    PRIMARY KEY (community_id, id),
    UNIQUE (community_id, h)
);

CREATE TABLE ingest.channel_members (
    community_id bigint      NOT NULL,
    channel_id   bigint      NOT NULL,
    pubkey       bytea       NOT NULL CHECK (octet_length(pubkey) = 32),
    role         text        NOT NULL CHECK (role IN ('owner', 'admin', 'member', 'guest', 'bot')),
    added_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (community_id, channel_id, pubkey),
    FOREIGN KEY (community_id, channel_id) REFERENCES ingest.channels (community_id, id) ON DELETE CASCADE
);
CREATE INDEX channel_members_pubkey ON ingest.channel_members (community_id, pubkey);

GRANT SELECT, INSERT, UPDATE, DELETE ON
    ingest.communities, ingest.community_hosts, ingest.community_members, ingest.channels, ingest.channel_members
    TO apiary_ingest;
GRANT SELECT ON
    ingest.communities, ingest.community_hosts, ingest.community_members, ingest.channels, ingest.channel_members
    TO apiary_search;

-- +goose Down
DROP TABLE ingest.channel_members;
DROP TABLE ingest.channels;
DROP TABLE ingest.community_members;
DROP TABLE ingest.community_hosts;
DROP TABLE ingest.communities;
