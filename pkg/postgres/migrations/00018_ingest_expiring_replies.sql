-- When replies expire (NIP-40), so that those that have are not counted before they are removed. Written by ingest, read by ingest
-- and search.

-- +goose Up

-- Replies from before, and those that a release from before files, have NULL and count until they are removed.
ALTER TABLE ingest.replies ADD COLUMN expires_at bigint;
CREATE INDEX replies_expiring ON ingest.replies (community_id, root_id, expires_at) WHERE expires_at IS NOT NULL;

-- +goose Down
ALTER TABLE ingest.replies DROP COLUMN expires_at;
