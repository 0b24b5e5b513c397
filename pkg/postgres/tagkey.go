package postgres

import "crypto/sha256"

// maxTagKey is the longest tag value that is stored as it is. A B-tree entry of event_tags must stay far
// below the 2,704 bytes that Postgres allows, and values that people look up are ids, keys and words.
const maxTagKey = 200

// digested begins the key of a value that is stored as its digest.
const digested = 0x01

// TagKey returns what event_tags.value holds for a tag value: the value's own bytes when it is at most
// 200 bytes long and does not begin with 0x01, otherwise 0x01 followed by its SHA-256 (33 bytes). Two
// values have the same key only if they are equal or SHA-256 collides, because no raw key begins with
// 0x01. The result is never nil: an empty value is an empty key, not NULL.
func TagKey(value string) []byte {
	if len(value) <= maxTagKey && (value == "" || value[0] != digested) {
		return append([]byte{}, value...)
	}
	sum := sha256.Sum256([]byte(value))
	return append([]byte{digested}, sum[:]...)
}
