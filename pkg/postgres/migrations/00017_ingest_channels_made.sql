-- An index to count channels and conversations by: of whom, and of the community. Made and read by ingest.

-- +goose Up

-- The community does not come first: the planner would look for a channel by its number with it, as long as it has no statistics.
CREATE INDEX channels_made ON ingest.channels (type, community_id, created_by);

-- +goose Down
DROP INDEX ingest.channels_made;
