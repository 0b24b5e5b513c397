-- When replies expire (NIP-40), so that those that have are not counted before they are removed. Written by ingest, read by ingest
-- and search. 00020 builds the index.

-- +goose Up

-- Replies from before, and those that a release from before files, have NULL and count until they are removed.
ALTER TABLE ingest.replies ADD COLUMN expires_at bigint;

-- +goose Down
ALTER TABLE ingest.replies DROP COLUMN expires_at;
