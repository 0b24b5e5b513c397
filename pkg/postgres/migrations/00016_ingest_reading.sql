-- Indexes that reads over HTTP go along: the newest replies of a thread, and what needs an action of a key. Made by ingest,
-- whose tables they are of; read by search.

-- +goose Up

-- replies_root is in the order of who reads a thread from its beginning. Read from its end it gives the replies of one
-- second in the wrong order.
CREATE INDEX replies_newest ON ingest.replies (community_id, root_id, created_at DESC, id);

-- The kinds are those of the feed needs_action (kind.NeedsAction): few events among very many mentions of a key.
CREATE INDEX event_tags_action ON ingest.event_tags (community_id, value, created_at DESC, id)
    WHERE name = 'p' AND kind IN (40007, 46010);

-- +goose Down
DROP INDEX ingest.event_tags_action;
DROP INDEX ingest.replies_newest;
