-- Which events a channel does not show when no thread is open, so that a window of it is read without reading those: the replies of a
-- hot thread may be many thousands between two messages. Written by ingest, read by search. 00020 builds the index.

-- +goose Up

-- False also for replies from before, and for those that a release from before stores: who reads a window still asks replies.
ALTER TABLE ingest.events ADD COLUMN in_thread boolean NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE ingest.events DROP COLUMN in_thread;
