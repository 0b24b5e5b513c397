-- What a community does with kinds that the registry (pkg/nostr/kind) does not know. Written by ingest alone.

-- +goose Up
ALTER TABLE ingest.communities
    ADD COLUMN unknown_kinds text NOT NULL DEFAULT 'allow' CHECK (unknown_kinds IN ('allow', 'registry-only'));

-- +goose Down
ALTER TABLE ingest.communities DROP COLUMN unknown_kinds;
