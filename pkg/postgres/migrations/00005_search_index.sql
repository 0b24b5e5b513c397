-- The text index of search (NIP-50): built from the stream by search's durable consumer, outside the commit
-- path, and only for kinds that hold text for people. Search may write here and nowhere else. Rows of events
-- that were deleted since are harmless (a result is joined with the event) and are swept.

-- +goose Up
CREATE TABLE search.documents (
    community_id bigint   NOT NULL,
    id           bytea    NOT NULL,
    created_at   bigint   NOT NULL,
    kind         integer  NOT NULL,
    words        tsvector NOT NULL,
    PRIMARY KEY (community_id, id)
);
CREATE INDEX documents_words ON search.documents USING gin (words);
CREATE INDEX documents_time ON search.documents (community_id, created_at DESC, id);

GRANT SELECT, INSERT, UPDATE, DELETE ON search.documents TO apiary_search;

-- +goose Down
DROP TABLE search.documents;
