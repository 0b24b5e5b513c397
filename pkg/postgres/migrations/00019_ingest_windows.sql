-- Which events a channel does not show when no thread is open, so that a window of it is read without reading those: the replies of a
-- hot thread may be many thousands between two messages. Written by ingest, read by search.

-- +goose Up

-- False also for replies from before, and for those that a release from before stores: who reads a window still asks replies.
ALTER TABLE ingest.events ADD COLUMN in_thread boolean NOT NULL DEFAULT false;
CREATE INDEX events_shown ON ingest.events (community_id, channel_id, created_at DESC, id) WHERE channel_id IS NOT NULL AND NOT in_thread;

-- +goose Down
DROP INDEX ingest.events_shown;
ALTER TABLE ingest.events DROP COLUMN in_thread;
