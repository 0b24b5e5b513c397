-- Events, their tags, addresses, tombstones and the outbox. Written by ingest, read by search.
-- events and event_tags are partitioned by month of created_at (Unix seconds, signed content); ingest
-- creates partitions ahead of time through ensure_event_partitions, the default partition holds what
-- is far off. Order everywhere: created_at DESC, id ASC.

-- +goose Up

-- event_ids answers "is this id stored, and when was it created" without probing every partition. It
-- is also what makes insertion of an event happen once.
CREATE TABLE ingest.event_ids (
    community_id bigint NOT NULL,
    id           bytea  NOT NULL,
    created_at   bigint NOT NULL,
    PRIMARY KEY (community_id, id)
);

-- raw is the event's JSON exactly as signed. commit_xid is the transaction that stored it: a reader
-- that knows its own snapshot can tell what it has seen, and what was committed since.
CREATE TABLE ingest.events (
    community_id bigint  NOT NULL,
    id           bytea   NOT NULL,
    pubkey       bytea   NOT NULL,
    kind         integer NOT NULL,
    created_at   bigint  NOT NULL,
    channel_id   bigint,
    expires_at   bigint,
    commit_xid   xid8    NOT NULL DEFAULT pg_current_xact_id(),
    raw          bytea   NOT NULL
) PARTITION BY RANGE (created_at);
CREATE UNIQUE INDEX events_time ON ingest.events (community_id, created_at DESC, id);
CREATE INDEX events_author ON ingest.events (community_id, pubkey, created_at DESC, id);
CREATE INDEX events_kind ON ingest.events (community_id, kind, created_at DESC, id);
CREATE INDEX events_channel ON ingest.events (community_id, channel_id, created_at DESC, id) WHERE channel_id IS NOT NULL;
CREATE INDEX events_expiry ON ingest.events (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE ingest.events_default PARTITION OF ingest.events DEFAULT;

-- One row for each distinct (letter, first value) of an event. Values longer than the B-tree takes are
-- stored as a digest; pkg/postgres owns that rule (TagKey).
CREATE TABLE ingest.event_tags (
    community_id bigint  NOT NULL,
    name         text    COLLATE "C" NOT NULL,
    value        bytea   NOT NULL,
    created_at   bigint  NOT NULL,
    id           bytea   NOT NULL,
    kind         integer NOT NULL
) PARTITION BY RANGE (created_at);
CREATE UNIQUE INDEX event_tags_value ON ingest.event_tags (community_id, name, value, created_at DESC, id);
CREATE TABLE ingest.event_tags_default PARTITION OF ingest.event_tags DEFAULT;

-- The winner of each replaceable and addressable event (d is empty for replaceable kinds).
CREATE TABLE ingest.addresses (
    community_id bigint  NOT NULL,
    kind         integer NOT NULL,
    pubkey       bytea   NOT NULL,
    d            bytea   NOT NULL,
    created_at   bigint  NOT NULL,
    id           bytea   NOT NULL,
    PRIMARY KEY (community_id, kind, pubkey, d)
);

-- Tombstones outlive the events they delete, and may come before them. pubkey is who asked: a request
-- binds only events of the same author.
CREATE TABLE ingest.tombstones (
    community_id bigint NOT NULL,
    id           bytea  NOT NULL,
    pubkey       bytea  NOT NULL,
    deletion_id  bytea  NOT NULL,
    PRIMARY KEY (community_id, id, pubkey)
);
CREATE TABLE ingest.address_tombstones (
    community_id bigint  NOT NULL,
    kind         integer NOT NULL,
    pubkey       bytea   NOT NULL,
    d            bytea   NOT NULL,
    until        bigint  NOT NULL,
    deletion_id  bytea   NOT NULL,
    PRIMARY KEY (community_id, kind, pubkey, d)
);

-- One row per commit, deleted when JetStream has acknowledged its messages.
CREATE TABLE ingest.outbox (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    payload    bytea       NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- ensure_event_partitions makes the monthly partitions from the month of from_time on. It runs with the
-- rights of the migration's user, since only a table's owner may add partitions. A month whose events
-- are already in the default partition is left there.
-- +goose StatementBegin
CREATE FUNCTION ingest.ensure_event_partitions(from_time timestamptz, months integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    month_start timestamptz := date_trunc('month', from_time AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    next_start  timestamptz;
    parent      text;
    child       text;
    made        integer := 0;
BEGIN
    IF months < 1 OR months > 120 THEN
        RAISE EXCEPTION 'months must be between 1 and 120, not %', months;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('ingest.ensure_event_partitions'));
    FOR i IN 1..months LOOP
        next_start := (month_start AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC';
        FOREACH parent IN ARRAY ARRAY['events', 'event_tags'] LOOP
            child := parent || to_char(month_start AT TIME ZONE 'UTC', '"_y"YYYY"m"MM');
            IF to_regclass('ingest.' || quote_ident(child)) IS NULL THEN
                BEGIN
                    EXECUTE format('CREATE TABLE ingest.%I PARTITION OF ingest.%I FOR VALUES FROM (%s) TO (%s)',
                        child, parent, extract(epoch FROM month_start)::bigint, extract(epoch FROM next_start)::bigint);
                    made := made + 1;
                EXCEPTION WHEN check_violation THEN
                    NULL;
                END;
            END IF;
        END LOOP;
        month_start := next_start;
    END LOOP;
    RETURN made;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION ingest.ensure_event_partitions(timestamptz, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ingest.ensure_event_partitions(timestamptz, integer) TO apiary_ingest;

GRANT SELECT, INSERT, UPDATE, DELETE ON
    ingest.event_ids, ingest.events, ingest.event_tags, ingest.addresses, ingest.tombstones,
    ingest.address_tombstones, ingest.outbox
    TO apiary_ingest;
GRANT SELECT ON
    ingest.event_ids, ingest.events, ingest.event_tags, ingest.addresses, ingest.tombstones,
    ingest.address_tombstones
    TO apiary_search;

-- +goose Down
DROP FUNCTION ingest.ensure_event_partitions(timestamptz, integer);
DROP TABLE ingest.outbox;
DROP TABLE ingest.address_tombstones;
DROP TABLE ingest.tombstones;
DROP TABLE ingest.addresses;
DROP TABLE ingest.event_tags;
DROP TABLE ingest.events;
DROP TABLE ingest.event_ids;
