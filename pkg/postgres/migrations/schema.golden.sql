-- What all migrations together make, for reviewers: pg_dump --schema-only without comments and settings.
-- Written by: go test ./pkg/postgres/migrations -update (through tools/pgtmp)

CREATE SCHEMA audit;

CREATE SCHEMA ingest;

CREATE SCHEMA media;

CREATE SCHEMA search;

CREATE SCHEMA workflow;

CREATE FUNCTION ingest.ensure_event_partitions(from_time timestamp with time zone, months integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

CREATE FUNCTION search.forget_community(community bigint, most integer) RETURNS integer
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    WITH gone AS (
        DELETE FROM search.documents
        WHERE community_id = $1 AND id = ANY (ARRAY(SELECT d.id FROM search.documents d WHERE d.community_id = $1 LIMIT $2))
        RETURNING 1)
    SELECT count(*)::integer FROM gone
$_$;

CREATE TABLE ingest.address_tombstones (
    community_id bigint NOT NULL,
    kind integer NOT NULL,
    pubkey bytea NOT NULL,
    d bytea NOT NULL,
    until bigint NOT NULL,
    deletion_id bytea NOT NULL
);

CREATE TABLE ingest.addresses (
    community_id bigint NOT NULL,
    kind integer NOT NULL,
    pubkey bytea NOT NULL,
    d bytea NOT NULL,
    created_at bigint NOT NULL,
    id bytea NOT NULL
);

CREATE TABLE ingest.agents (
    community_id bigint NOT NULL,
    pubkey bytea NOT NULL,
    owner bytea NOT NULL,
    until timestamp with time zone,
    attested_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT agents_check CHECK (((octet_length(owner) = 32) AND (owner <> pubkey))),
    CONSTRAINT agents_pubkey_check CHECK ((octet_length(pubkey) = 32))
);

CREATE TABLE ingest.communities (
    id bigint NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    icon text DEFAULT ''::text NOT NULL,
    access text DEFAULT 'closed'::text NOT NULL,
    acl_version bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    min_pow smallint DEFAULT 0 NOT NULL,
    unknown_kinds text DEFAULT 'allow'::text NOT NULL,
    uuid uuid DEFAULT gen_random_uuid() NOT NULL,
    archived_at timestamp with time zone,
    deleting_at timestamp with time zone,
    agents text DEFAULT 'admit'::text NOT NULL,
    members_due_at timestamp with time zone,
    CONSTRAINT communities_access_check CHECK ((access = ANY (ARRAY['open'::text, 'closed'::text]))),
    CONSTRAINT communities_agents_check CHECK ((agents = ANY (ARRAY['admit'::text, 'refuse'::text]))),
    CONSTRAINT communities_deleting_check CHECK (((deleting_at IS NULL) OR (archived_at IS NOT NULL))),
    CONSTRAINT communities_min_pow_check CHECK (((min_pow >= 0) AND (min_pow <= 64))),
    CONSTRAINT communities_unknown_kinds_check CHECK ((unknown_kinds = ANY (ARRAY['allow'::text, 'registry-only'::text])))
);

CREATE TABLE ingest.community_members (
    community_id bigint NOT NULL,
    pubkey bytea NOT NULL,
    role text NOT NULL,
    added_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT community_members_pubkey_check CHECK ((octet_length(pubkey) = 32)),
    CONSTRAINT community_members_role_check CHECK ((role = ANY (ARRAY['owner'::text, 'admin'::text, 'member'::text])))
);

CREATE VIEW ingest.admitted AS
 SELECT m.community_id,
    m.pubkey
   FROM ingest.community_members m
UNION ALL
 SELECT a.community_id,
    a.pubkey
   FROM ingest.agents a
  WHERE (((a.until IS NULL) OR (a.until > now())) AND (EXISTS ( SELECT
           FROM ingest.communities c
          WHERE ((c.id = a.community_id) AND (c.agents = 'admit'::text))
         OFFSET 0)) AND (EXISTS ( SELECT
           FROM ingest.community_members m
          WHERE ((m.community_id = a.community_id) AND (m.pubkey = a.owner))
         OFFSET 0)));

CREATE TABLE ingest.allowed_kinds (
    community_id bigint NOT NULL,
    kind integer NOT NULL,
    CONSTRAINT allowed_kinds_kind_check CHECK (((kind >= 0) AND (kind <= 65535)))
);

CREATE TABLE ingest.banned_events (
    community_id bigint NOT NULL,
    id bytea NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    decided_by bytea NOT NULL,
    decided_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT banned_events_id_check CHECK ((octet_length(id) = 32))
);

CREATE TABLE ingest.banned_pubkeys (
    community_id bigint NOT NULL,
    pubkey bytea NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    decided_by bytea NOT NULL,
    decided_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    CONSTRAINT banned_pubkeys_pubkey_check CHECK ((octet_length(pubkey) = 32))
);

CREATE VIEW ingest.barred AS
 SELECT b.community_id,
    b.pubkey
   FROM ingest.banned_pubkeys b
  WHERE ((b.expires_at IS NULL) OR (b.expires_at > now()))
UNION ALL
 SELECT a.community_id,
    a.pubkey
   FROM ingest.agents a
  WHERE (EXISTS ( SELECT
           FROM ingest.banned_pubkeys b
          WHERE ((b.community_id = a.community_id) AND (b.pubkey = a.owner) AND ((b.expires_at IS NULL) OR (b.expires_at > now())))
         OFFSET 0));

CREATE TABLE ingest.blocked_networks (
    community_id bigint NOT NULL,
    network cidr NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    decided_by bytea NOT NULL,
    decided_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE ingest.channel_invites (
    community_id bigint NOT NULL,
    channel_id bigint NOT NULL,
    code_hash bytea NOT NULL,
    created_by bytea NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT channel_invites_code_hash_check CHECK ((octet_length(code_hash) = 32)),
    CONSTRAINT channel_invites_created_by_check CHECK ((octet_length(created_by) = 32))
);

CREATE TABLE ingest.channel_members (
    community_id bigint NOT NULL,
    channel_id bigint NOT NULL,
    pubkey bytea NOT NULL,
    role text NOT NULL,
    added_at timestamp with time zone DEFAULT now() NOT NULL,
    hidden_at timestamp with time zone,
    CONSTRAINT channel_members_pubkey_check CHECK ((octet_length(pubkey) = 32)),
    CONSTRAINT channel_members_role_check CHECK ((role = ANY (ARRAY['owner'::text, 'admin'::text, 'member'::text, 'guest'::text, 'bot'::text])))
);

CREATE SEQUENCE ingest.channel_versions
    START WITH 268435456
    INCREMENT BY 268435456
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE ingest.channels (
    community_id bigint NOT NULL,
    id bigint NOT NULL,
    h text NOT NULL COLLATE pg_catalog."C",
    name text DEFAULT ''::text NOT NULL,
    about text DEFAULT ''::text NOT NULL,
    picture text DEFAULT ''::text NOT NULL,
    visibility text DEFAULT 'open'::text NOT NULL,
    acl_version bigint DEFAULT nextval('ingest.channel_versions'::regclass) NOT NULL,
    created_by bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    archived_at timestamp with time zone,
    banner text DEFAULT ''::text NOT NULL,
    type text DEFAULT 'stream'::text NOT NULL,
    topic text DEFAULT ''::text NOT NULL,
    purpose text DEFAULT ''::text NOT NULL,
    ttl_seconds integer,
    ttl_deadline timestamp with time zone,
    previous_required boolean DEFAULT false NOT NULL,
    snapshot_due boolean DEFAULT true NOT NULL,
    participants bytea,
    members_due_at timestamp with time zone,
    CONSTRAINT channels_check CHECK (((ttl_deadline IS NULL) = (ttl_seconds IS NULL))),
    CONSTRAINT channels_created_by_check CHECK ((octet_length(created_by) = 32)),
    CONSTRAINT channels_dm_check CHECK (((participants IS NOT NULL) = (type = 'dm'::text))),
    CONSTRAINT channels_h_check CHECK ((h ~ '^[A-Za-z0-9_-]{1,64}$'::text)),
    CONSTRAINT channels_participants_check CHECK ((octet_length(participants) = 32)),
    CONSTRAINT channels_ttl_seconds_check CHECK ((ttl_seconds > 0)),
    CONSTRAINT channels_type_check CHECK ((type = ANY (ARRAY['stream'::text, 'forum'::text, 'dm'::text, 'workflow'::text]))),
    CONSTRAINT channels_visibility_check CHECK ((visibility = ANY (ARRAY['open'::text, 'private'::text])))
);

ALTER TABLE ingest.channels ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME ingest.channels_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE ingest.commands (
    community_id bigint NOT NULL,
    id bytea NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT commands_id_check CHECK ((octet_length(id) = 32))
);

ALTER TABLE ingest.communities ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME ingest.communities_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE ingest.community_deletions (
    request_id text NOT NULL,
    community_id bigint NOT NULL,
    uuid uuid NOT NULL,
    owner bytea NOT NULL,
    hosts text[] NOT NULL,
    requested_at timestamp with time zone DEFAULT now() NOT NULL,
    outbox_done bigint DEFAULT 0 NOT NULL,
    outbox_end bigint NOT NULL,
    drained_by text DEFAULT ''::text NOT NULL,
    lease_until timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    removed bigint DEFAULT 0 NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT community_deletions_owner_check CHECK ((octet_length(owner) = 32)),
    CONSTRAINT community_deletions_request_id_check CHECK (((octet_length(request_id) >= 1) AND (octet_length(request_id) <= 128)))
);

CREATE TABLE ingest.community_hosts (
    host text NOT NULL,
    community_id bigint,
    is_primary boolean DEFAULT false NOT NULL,
    CONSTRAINT community_hosts_host_check CHECK (((host = lower(host)) AND (host <> ''::text)))
);

CREATE TABLE ingest.decided_reports (
    community_id bigint NOT NULL,
    target_id bytea NOT NULL,
    decided_by bytea NOT NULL,
    decided_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT decided_reports_target_id_check CHECK ((octet_length(target_id) = 32))
);

CREATE TABLE ingest.deleted_channels (
    community_id bigint NOT NULL,
    channel_id bigint NOT NULL,
    deleted_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE ingest.event_ids (
    community_id bigint NOT NULL,
    id bytea NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE ingest.event_tags (
    community_id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    value bytea NOT NULL,
    created_at bigint NOT NULL,
    id bytea NOT NULL,
    kind integer NOT NULL
)
PARTITION BY RANGE (created_at);

CREATE TABLE ingest.event_tags_default (
    community_id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    value bytea NOT NULL,
    created_at bigint NOT NULL,
    id bytea NOT NULL,
    kind integer NOT NULL
);

CREATE TABLE ingest.events (
    community_id bigint NOT NULL,
    id bytea NOT NULL,
    pubkey bytea NOT NULL,
    kind integer NOT NULL,
    created_at bigint NOT NULL,
    channel_id bigint,
    expires_at bigint,
    commit_xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    raw bytea NOT NULL,
    in_thread boolean DEFAULT false NOT NULL
)
PARTITION BY RANGE (created_at);

CREATE TABLE ingest.events_default (
    community_id bigint NOT NULL,
    id bytea NOT NULL,
    pubkey bytea NOT NULL,
    kind integer NOT NULL,
    created_at bigint NOT NULL,
    channel_id bigint,
    expires_at bigint,
    commit_xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    raw bytea NOT NULL,
    in_thread boolean DEFAULT false NOT NULL
);

CREATE TABLE ingest.http_tokens (
    community_id bigint NOT NULL,
    event_id bytea NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT http_tokens_event_id_check CHECK ((octet_length(event_id) = 32))
);

CREATE TABLE ingest.invites (
    community_id bigint NOT NULL,
    code_hash bytea NOT NULL,
    role text NOT NULL,
    created_by bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    max_uses integer,
    uses integer DEFAULT 0 NOT NULL,
    CONSTRAINT invites_check CHECK (((max_uses IS NULL) OR (uses <= max_uses))),
    CONSTRAINT invites_code_hash_check CHECK ((octet_length(code_hash) = 32)),
    CONSTRAINT invites_created_by_check CHECK ((octet_length(created_by) = 32)),
    CONSTRAINT invites_max_uses_check CHECK ((max_uses > 0)),
    CONSTRAINT invites_role_check CHECK ((role = ANY (ARRAY['admin'::text, 'member'::text])))
);

CREATE TABLE ingest.moderation_actions (
    community_id bigint NOT NULL,
    id bigint NOT NULL,
    action text NOT NULL,
    actor bytea NOT NULL,
    command_id bytea,
    pubkey bytea,
    event_id bytea,
    report_id bytea,
    subject text DEFAULT ''::text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    expires_at timestamp with time zone,
    decided_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT moderation_actions_actor_check CHECK ((octet_length(actor) = 32)),
    CONSTRAINT moderation_actions_command_id_check CHECK ((octet_length(command_id) = 32)),
    CONSTRAINT moderation_actions_event_id_check CHECK ((octet_length(event_id) = 32)),
    CONSTRAINT moderation_actions_pubkey_check CHECK ((octet_length(pubkey) = 32)),
    CONSTRAINT moderation_actions_report_id_check CHECK ((octet_length(report_id) = 32))
);

ALTER TABLE ingest.moderation_actions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME ingest.moderation_actions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE ingest.operator_tokens (
    event_id bytea NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT operator_tokens_event_id_check CHECK ((octet_length(event_id) = 32))
);

CREATE TABLE ingest.outbox (
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    payload bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000');

ALTER TABLE ingest.outbox ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME ingest.outbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE ingest.reactions (
    community_id bigint NOT NULL,
    target_id bytea NOT NULL,
    pubkey bytea NOT NULL,
    emoji bytea NOT NULL,
    id bytea NOT NULL
);

CREATE TABLE ingest.reminders (
    community_id bigint NOT NULL,
    due_at bigint NOT NULL,
    id bytea NOT NULL,
    created_at bigint NOT NULL,
    CONSTRAINT reminders_id_check CHECK ((octet_length(id) = 32))
);

CREATE TABLE ingest.replies (
    community_id bigint NOT NULL,
    id bytea NOT NULL,
    root_id bytea NOT NULL,
    parent_id bytea NOT NULL,
    depth smallint NOT NULL,
    broadcast boolean NOT NULL,
    pubkey bytea NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    CONSTRAINT replies_depth_check CHECK ((depth > 0))
);

CREATE TABLE ingest.reply_counts (
    community_id bigint NOT NULL,
    id bytea NOT NULL,
    replies integer NOT NULL,
    descendants integer NOT NULL,
    summary_at bigint NOT NULL,
    CONSTRAINT reply_counts_descendants_check CHECK ((descendants >= 0)),
    CONSTRAINT reply_counts_replies_check CHECK ((replies >= 0))
);

CREATE TABLE ingest.report_decisions (
    community_id bigint NOT NULL,
    report_id bytea NOT NULL,
    status text NOT NULL,
    action text NOT NULL,
    decided_by bytea NOT NULL,
    decided_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT report_decisions_decided_by_check CHECK ((octet_length(decided_by) = 32)),
    CONSTRAINT report_decisions_report_id_check CHECK ((octet_length(report_id) = 32)),
    CONSTRAINT report_decisions_status_check CHECK ((status = ANY (ARRAY['resolved'::text, 'dismissed'::text, 'escalated'::text])))
);

CREATE TABLE ingest.timeouts (
    community_id bigint NOT NULL,
    pubkey bytea NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    decided_by bytea NOT NULL,
    decided_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT timeouts_decided_by_check CHECK ((octet_length(decided_by) = 32)),
    CONSTRAINT timeouts_pubkey_check CHECK ((octet_length(pubkey) = 32))
);

CREATE VIEW ingest.silenced AS
 SELECT t.community_id,
    t.pubkey,
    t.expires_at
   FROM ingest.timeouts t
  WHERE (t.expires_at > now())
UNION ALL
 SELECT a.community_id,
    a.pubkey,
    t.expires_at
   FROM (ingest.agents a
     CROSS JOIN LATERAL ( SELECT t_1.expires_at
           FROM ingest.timeouts t_1
          WHERE ((t_1.community_id = a.community_id) AND (t_1.pubkey = a.owner) AND (t_1.expires_at > now()))
         OFFSET 0) t);

CREATE TABLE ingest.tombstones (
    community_id bigint NOT NULL,
    id bytea NOT NULL,
    pubkey bytea NOT NULL,
    deletion_id bytea NOT NULL
);

CREATE TABLE ingest.vanished (
    community_id bigint NOT NULL,
    pubkey bytea NOT NULL,
    until bigint NOT NULL,
    request_id bytea NOT NULL,
    CONSTRAINT vanished_pubkey_check CHECK ((octet_length(pubkey) = 32))
);

CREATE TABLE public.goose_db_version (
    id integer NOT NULL,
    version_id bigint NOT NULL,
    is_applied boolean NOT NULL,
    tstamp timestamp without time zone DEFAULT now() NOT NULL
);

ALTER TABLE public.goose_db_version ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.goose_db_version_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE search.documents (
    community_id bigint NOT NULL,
    id bytea NOT NULL,
    created_at bigint NOT NULL,
    kind integer NOT NULL,
    words tsvector NOT NULL
);

ALTER TABLE ONLY ingest.event_tags ATTACH PARTITION ingest.event_tags_default DEFAULT;

ALTER TABLE ONLY ingest.events ATTACH PARTITION ingest.events_default DEFAULT;

ALTER TABLE ONLY ingest.address_tombstones
    ADD CONSTRAINT address_tombstones_pkey PRIMARY KEY (community_id, kind, pubkey, d);

ALTER TABLE ONLY ingest.addresses
    ADD CONSTRAINT addresses_pkey PRIMARY KEY (community_id, kind, pubkey, d);

ALTER TABLE ONLY ingest.agents
    ADD CONSTRAINT agents_pkey PRIMARY KEY (community_id, pubkey);

ALTER TABLE ONLY ingest.allowed_kinds
    ADD CONSTRAINT allowed_kinds_pkey PRIMARY KEY (community_id, kind);

ALTER TABLE ONLY ingest.banned_events
    ADD CONSTRAINT banned_events_pkey PRIMARY KEY (community_id, id);

ALTER TABLE ONLY ingest.banned_pubkeys
    ADD CONSTRAINT banned_pubkeys_pkey PRIMARY KEY (community_id, pubkey);

ALTER TABLE ONLY ingest.blocked_networks
    ADD CONSTRAINT blocked_networks_pkey PRIMARY KEY (community_id, network);

ALTER TABLE ONLY ingest.channel_invites
    ADD CONSTRAINT channel_invites_pkey PRIMARY KEY (community_id, channel_id, code_hash);

ALTER TABLE ONLY ingest.channel_members
    ADD CONSTRAINT channel_members_pkey PRIMARY KEY (community_id, channel_id, pubkey);

ALTER TABLE ONLY ingest.channels
    ADD CONSTRAINT channels_h_key UNIQUE (h, community_id);

ALTER TABLE ONLY ingest.channels
    ADD CONSTRAINT channels_pkey PRIMARY KEY (community_id, id);

ALTER TABLE ONLY ingest.commands
    ADD CONSTRAINT commands_pkey PRIMARY KEY (community_id, id);

ALTER TABLE ONLY ingest.communities
    ADD CONSTRAINT communities_pkey PRIMARY KEY (id);

ALTER TABLE ONLY ingest.communities
    ADD CONSTRAINT communities_uuid_key UNIQUE (uuid);

ALTER TABLE ONLY ingest.community_deletions
    ADD CONSTRAINT community_deletions_community_id_key UNIQUE (community_id);

ALTER TABLE ONLY ingest.community_deletions
    ADD CONSTRAINT community_deletions_pkey PRIMARY KEY (request_id);

ALTER TABLE ONLY ingest.community_hosts
    ADD CONSTRAINT community_hosts_pkey PRIMARY KEY (host);

ALTER TABLE ONLY ingest.community_members
    ADD CONSTRAINT community_members_pkey PRIMARY KEY (community_id, pubkey);

ALTER TABLE ONLY ingest.decided_reports
    ADD CONSTRAINT decided_reports_pkey PRIMARY KEY (community_id, target_id);

ALTER TABLE ONLY ingest.deleted_channels
    ADD CONSTRAINT deleted_channels_pkey PRIMARY KEY (community_id, channel_id);

ALTER TABLE ONLY ingest.event_ids
    ADD CONSTRAINT event_ids_pkey PRIMARY KEY (community_id, id);

ALTER TABLE ONLY ingest.http_tokens
    ADD CONSTRAINT http_tokens_pkey PRIMARY KEY (community_id, event_id);

ALTER TABLE ONLY ingest.invites
    ADD CONSTRAINT invites_pkey PRIMARY KEY (community_id, code_hash);

ALTER TABLE ONLY ingest.moderation_actions
    ADD CONSTRAINT moderation_actions_pkey PRIMARY KEY (community_id, id);

ALTER TABLE ONLY ingest.operator_tokens
    ADD CONSTRAINT operator_tokens_pkey PRIMARY KEY (event_id);

ALTER TABLE ONLY ingest.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (id);

ALTER TABLE ONLY ingest.reactions
    ADD CONSTRAINT reactions_pkey PRIMARY KEY (community_id, target_id, pubkey, emoji);

ALTER TABLE ONLY ingest.reminders
    ADD CONSTRAINT reminders_pkey PRIMARY KEY (community_id, due_at, id);

ALTER TABLE ONLY ingest.replies
    ADD CONSTRAINT replies_pkey PRIMARY KEY (community_id, id);

ALTER TABLE ONLY ingest.reply_counts
    ADD CONSTRAINT reply_counts_pkey PRIMARY KEY (community_id, id);

ALTER TABLE ONLY ingest.report_decisions
    ADD CONSTRAINT report_decisions_pkey PRIMARY KEY (community_id, report_id);

ALTER TABLE ONLY ingest.timeouts
    ADD CONSTRAINT timeouts_pkey PRIMARY KEY (community_id, pubkey);

ALTER TABLE ONLY ingest.tombstones
    ADD CONSTRAINT tombstones_pkey PRIMARY KEY (community_id, id, pubkey);

ALTER TABLE ONLY ingest.vanished
    ADD CONSTRAINT vanished_pkey PRIMARY KEY (community_id, pubkey);

ALTER TABLE ONLY public.goose_db_version
    ADD CONSTRAINT goose_db_version_pkey PRIMARY KEY (id);

ALTER TABLE ONLY search.documents
    ADD CONSTRAINT documents_pkey PRIMARY KEY (community_id, id);

CREATE INDEX agents_owner ON ingest.agents USING btree (owner) INCLUDE (community_id);

CREATE INDEX agents_until ON ingest.agents USING btree (until) WHERE (until > '-infinity'::timestamp with time zone);

CREATE INDEX banned_pubkeys_expiry ON ingest.banned_pubkeys USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX channel_invites_expiry ON ingest.channel_invites USING btree (expires_at);

CREATE INDEX channel_members_hidden ON ingest.channel_members USING btree (community_id, pubkey) WHERE (hidden_at IS NOT NULL);

CREATE INDEX channel_members_pubkey ON ingest.channel_members USING btree (community_id, pubkey);

CREATE INDEX channels_made ON ingest.channels USING btree (type, community_id, created_by);

CREATE INDEX channels_members_due ON ingest.channels USING btree (members_due_at) WHERE (members_due_at IS NOT NULL);

CREATE UNIQUE INDEX channels_participants ON ingest.channels USING btree (community_id, participants) WHERE (participants IS NOT NULL);

CREATE INDEX channels_snapshot_due ON ingest.channels USING btree (community_id, id) WHERE snapshot_due;

CREATE INDEX channels_ttl_deadline ON ingest.channels USING btree (ttl_deadline) WHERE ((archived_at IS NULL) AND (ttl_deadline IS NOT NULL));

CREATE INDEX commands_expiry ON ingest.commands USING btree (expires_at);

CREATE INDEX communities_members_due ON ingest.communities USING btree (members_due_at) WHERE (members_due_at IS NOT NULL);

CREATE INDEX community_deletions_open ON ingest.community_deletions USING btree (requested_at) WHERE (finished_at IS NULL);

CREATE INDEX community_hosts_community ON ingest.community_hosts USING btree (community_id);

CREATE INDEX community_members_owner ON ingest.community_members USING btree (pubkey) WHERE (role = 'owner'::text);

CREATE INDEX deleted_channels_time ON ingest.deleted_channels USING btree (deleted_at);

CREATE INDEX event_tags_action ON ONLY ingest.event_tags USING btree (community_id, value, created_at DESC, id) WHERE ((name = 'p'::text) AND (kind = ANY (ARRAY[40007, 46010])));

CREATE INDEX event_tags_default_action ON ingest.event_tags_default USING btree (community_id, value, created_at DESC, id) WHERE ((name = 'p'::text) AND (kind = ANY (ARRAY[40007, 46010])));

CREATE UNIQUE INDEX event_tags_value ON ONLY ingest.event_tags USING btree (community_id, name, value, created_at DESC, id);

CREATE UNIQUE INDEX event_tags_default_community_id_name_value_created_at_id_idx ON ingest.event_tags_default USING btree (community_id, name, value, created_at DESC, id);

CREATE INDEX events_author ON ONLY ingest.events USING btree (community_id, pubkey, created_at DESC, id);

CREATE INDEX events_channel ON ONLY ingest.events USING btree (community_id, channel_id, created_at DESC, id) WHERE (channel_id IS NOT NULL);

CREATE INDEX events_default_community_id_channel_id_created_at_id_idx ON ingest.events_default USING btree (community_id, channel_id, created_at DESC, id) WHERE (channel_id IS NOT NULL);

CREATE UNIQUE INDEX events_time ON ONLY ingest.events USING btree (community_id, created_at DESC, id);

CREATE UNIQUE INDEX events_default_community_id_created_at_id_idx ON ingest.events_default USING btree (community_id, created_at DESC, id);

CREATE INDEX events_kind ON ONLY ingest.events USING btree (community_id, kind, created_at DESC, id);

CREATE INDEX events_default_community_id_kind_created_at_id_idx ON ingest.events_default USING btree (community_id, kind, created_at DESC, id);

CREATE INDEX events_default_community_id_pubkey_created_at_id_idx ON ingest.events_default USING btree (community_id, pubkey, created_at DESC, id);

CREATE INDEX events_expiry ON ONLY ingest.events USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX events_default_expires_at_idx ON ingest.events_default USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX events_shown ON ONLY ingest.events USING btree (community_id, channel_id, created_at DESC, id) WHERE ((channel_id IS NOT NULL) AND (NOT in_thread));

CREATE INDEX events_default_shown ON ingest.events_default USING btree (community_id, channel_id, created_at DESC, id) WHERE ((channel_id IS NOT NULL) AND (NOT in_thread));

CREATE INDEX http_tokens_expiry ON ingest.http_tokens USING btree (expires_at);

CREATE INDEX invites_expiry ON ingest.invites USING btree (expires_at);

CREATE INDEX operator_tokens_expiry ON ingest.operator_tokens USING btree (expires_at);

CREATE INDEX reminders_due ON ingest.reminders USING btree (due_at);

CREATE INDEX replies_depth ON ingest.replies USING btree (community_id, root_id, depth, created_at);

CREATE INDEX replies_expiring ON ingest.replies USING btree (community_id, root_id, expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX replies_newest ON ingest.replies USING btree (community_id, root_id, created_at DESC, id);

CREATE INDEX replies_root ON ingest.replies USING btree (community_id, root_id, created_at, id);

CREATE INDEX timeouts_expiry ON ingest.timeouts USING btree (expires_at);

CREATE INDEX documents_time ON search.documents USING btree (community_id, created_at DESC, id);

CREATE INDEX documents_words ON search.documents USING gin (words);

ALTER INDEX ingest.event_tags_action ATTACH PARTITION ingest.event_tags_default_action;

ALTER INDEX ingest.event_tags_value ATTACH PARTITION ingest.event_tags_default_community_id_name_value_created_at_id_idx;

ALTER INDEX ingest.events_channel ATTACH PARTITION ingest.events_default_community_id_channel_id_created_at_id_idx;

ALTER INDEX ingest.events_time ATTACH PARTITION ingest.events_default_community_id_created_at_id_idx;

ALTER INDEX ingest.events_kind ATTACH PARTITION ingest.events_default_community_id_kind_created_at_id_idx;

ALTER INDEX ingest.events_author ATTACH PARTITION ingest.events_default_community_id_pubkey_created_at_id_idx;

ALTER INDEX ingest.events_expiry ATTACH PARTITION ingest.events_default_expires_at_idx;

ALTER INDEX ingest.events_shown ATTACH PARTITION ingest.events_default_shown;

ALTER TABLE ONLY ingest.agents
    ADD CONSTRAINT agents_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.allowed_kinds
    ADD CONSTRAINT allowed_kinds_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.banned_events
    ADD CONSTRAINT banned_events_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.banned_pubkeys
    ADD CONSTRAINT banned_pubkeys_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.blocked_networks
    ADD CONSTRAINT blocked_networks_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.channel_invites
    ADD CONSTRAINT channel_invites_community_id_channel_id_fkey FOREIGN KEY (community_id, channel_id) REFERENCES ingest.channels(community_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.channel_members
    ADD CONSTRAINT channel_members_community_id_channel_id_fkey FOREIGN KEY (community_id, channel_id) REFERENCES ingest.channels(community_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.channels
    ADD CONSTRAINT channels_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.commands
    ADD CONSTRAINT commands_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.community_hosts
    ADD CONSTRAINT community_hosts_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE SET NULL;

ALTER TABLE ONLY ingest.community_members
    ADD CONSTRAINT community_members_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.decided_reports
    ADD CONSTRAINT decided_reports_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.deleted_channels
    ADD CONSTRAINT deleted_channels_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.http_tokens
    ADD CONSTRAINT http_tokens_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.invites
    ADD CONSTRAINT invites_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.moderation_actions
    ADD CONSTRAINT moderation_actions_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.report_decisions
    ADD CONSTRAINT report_decisions_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.timeouts
    ADD CONSTRAINT timeouts_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest.vanished
    ADD CONSTRAINT vanished_community_id_fkey FOREIGN KEY (community_id) REFERENCES ingest.communities(id) ON DELETE CASCADE;

GRANT USAGE ON SCHEMA audit TO apiary_audit;

GRANT USAGE ON SCHEMA ingest TO apiary_ingest;
GRANT USAGE ON SCHEMA ingest TO apiary_search;

GRANT USAGE ON SCHEMA media TO apiary_media;

GRANT USAGE ON SCHEMA search TO apiary_search;
GRANT USAGE ON SCHEMA search TO apiary_ingest;

GRANT USAGE ON SCHEMA workflow TO apiary_workflow;

REVOKE ALL ON FUNCTION ingest.ensure_event_partitions(from_time timestamp with time zone, months integer) FROM PUBLIC;
GRANT ALL ON FUNCTION ingest.ensure_event_partitions(from_time timestamp with time zone, months integer) TO apiary_ingest;

REVOKE ALL ON FUNCTION search.forget_community(community bigint, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION search.forget_community(community bigint, most integer) TO apiary_ingest;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.address_tombstones TO apiary_ingest;
GRANT SELECT ON TABLE ingest.address_tombstones TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.addresses TO apiary_ingest;
GRANT SELECT ON TABLE ingest.addresses TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.agents TO apiary_ingest;
GRANT SELECT ON TABLE ingest.agents TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.communities TO apiary_ingest;
GRANT SELECT ON TABLE ingest.communities TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.community_members TO apiary_ingest;
GRANT SELECT ON TABLE ingest.community_members TO apiary_search;

GRANT SELECT ON TABLE ingest.admitted TO apiary_ingest;
GRANT SELECT ON TABLE ingest.admitted TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.allowed_kinds TO apiary_ingest;
GRANT SELECT ON TABLE ingest.allowed_kinds TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.banned_events TO apiary_ingest;
GRANT SELECT ON TABLE ingest.banned_events TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.banned_pubkeys TO apiary_ingest;
GRANT SELECT ON TABLE ingest.banned_pubkeys TO apiary_search;

GRANT SELECT ON TABLE ingest.barred TO apiary_ingest;
GRANT SELECT ON TABLE ingest.barred TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.blocked_networks TO apiary_ingest;
GRANT SELECT ON TABLE ingest.blocked_networks TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.channel_invites TO apiary_ingest;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.channel_members TO apiary_ingest;
GRANT SELECT ON TABLE ingest.channel_members TO apiary_search;

GRANT USAGE ON SEQUENCE ingest.channel_versions TO apiary_ingest;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.channels TO apiary_ingest;
GRANT SELECT ON TABLE ingest.channels TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.commands TO apiary_ingest;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.community_deletions TO apiary_ingest;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.community_hosts TO apiary_ingest;
GRANT SELECT ON TABLE ingest.community_hosts TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.decided_reports TO apiary_ingest;
GRANT SELECT ON TABLE ingest.decided_reports TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.deleted_channels TO apiary_ingest;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.event_ids TO apiary_ingest;
GRANT SELECT ON TABLE ingest.event_ids TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.event_tags TO apiary_ingest;
GRANT SELECT ON TABLE ingest.event_tags TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.events TO apiary_ingest;
GRANT SELECT ON TABLE ingest.events TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.http_tokens TO apiary_ingest;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.invites TO apiary_ingest;

GRANT SELECT,INSERT,DELETE ON TABLE ingest.moderation_actions TO apiary_ingest;
GRANT SELECT ON TABLE ingest.moderation_actions TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.operator_tokens TO apiary_ingest;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.outbox TO apiary_ingest;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.reactions TO apiary_ingest;
GRANT SELECT ON TABLE ingest.reactions TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.reminders TO apiary_ingest;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.replies TO apiary_ingest;
GRANT SELECT ON TABLE ingest.replies TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.reply_counts TO apiary_ingest;
GRANT SELECT ON TABLE ingest.reply_counts TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.report_decisions TO apiary_ingest;
GRANT SELECT ON TABLE ingest.report_decisions TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.timeouts TO apiary_ingest;
GRANT SELECT ON TABLE ingest.timeouts TO apiary_search;

GRANT SELECT ON TABLE ingest.silenced TO apiary_ingest;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.tombstones TO apiary_ingest;
GRANT SELECT ON TABLE ingest.tombstones TO apiary_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE ingest.vanished TO apiary_ingest;
GRANT SELECT ON TABLE ingest.vanished TO apiary_search;

GRANT SELECT ON TABLE public.goose_db_version TO apiary_ingest;
GRANT SELECT ON TABLE public.goose_db_version TO apiary_search;
GRANT SELECT ON TABLE public.goose_db_version TO apiary_audit;
GRANT SELECT ON TABLE public.goose_db_version TO apiary_workflow;
GRANT SELECT ON TABLE public.goose_db_version TO apiary_media;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE search.documents TO apiary_search;
