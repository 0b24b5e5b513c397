-- One role per service, one schema per owner. The roles cannot log in: a service logs in with the
-- operator's user and takes its role with SET ROLE, so that one DATABASE_URL is enough and a reader
-- still cannot write. Roles belong to the whole Postgres cluster, so they may exist already.

-- +goose Up
-- +goose StatementBegin
DO $$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['apiary_ingest', 'apiary_search', 'apiary_audit', 'apiary_workflow', 'apiary_media']
    LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL; -- another database of this cluster migrates at the same time
            END;
        END IF;
        -- Since 16, whoever creates a role is a member that may not take it.
        IF NOT pg_has_role(current_user, role_name,
            CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
            EXECUTE format('GRANT %I TO %I', role_name, current_user);
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd

CREATE SCHEMA ingest;
CREATE SCHEMA search;
CREATE SCHEMA audit;
CREATE SCHEMA workflow;
CREATE SCHEMA media;

GRANT USAGE ON SCHEMA ingest TO apiary_ingest, apiary_search;
GRANT USAGE ON SCHEMA search TO apiary_search;
GRANT USAGE ON SCHEMA audit TO apiary_audit;
GRANT USAGE ON SCHEMA workflow TO apiary_workflow;
GRANT USAGE ON SCHEMA media TO apiary_media;

-- Every service checks the schema version before it says that it is ready.
GRANT SELECT ON public.goose_db_version TO apiary_ingest, apiary_search, apiary_audit, apiary_workflow, apiary_media;

-- +goose Down
-- The roles stay: another database may use them.
REVOKE ALL ON public.goose_db_version FROM apiary_ingest, apiary_search, apiary_audit, apiary_workflow, apiary_media;
DROP SCHEMA media;
DROP SCHEMA workflow;
DROP SCHEMA audit;
DROP SCHEMA search;
DROP SCHEMA ingest;
