// Package plan turns a NIP-01 filter into one SQL statement that reads only what it returns.
//
// # Statements
//
// There is a closed set of statements, one per Shape (a few dozen). A filter chooses a shape; all that it
// says travels in the arguments. So nothing a client sends can become SQL, a connection prepares each
// statement once, and a test can prepare and explain every one of them.
//
// # Drivers
//
// A shape's Driver is the index that yields the candidates, newest first; what else the filter says is
// checked on each candidate, inside the same statement, before the limit counts it. A driver with several
// values (authors, kinds, channels, tag values) is a LATERAL join: each value yields at most limit
// candidates in order, the statement keeps the newest of all. Where that would be many rows for few, it reads
// the last day first, then the last month, then the rest, and stops when the limit is filled.
//
//	driver    chosen when                                       index
//	words     a search (NIP-50)                                 documents_words (GIN), then events_time
//	ids       ids are given                                     event_ids_pkey, then events_time
//	address   all kinds replaceable or addressable, and authors addresses_pkey, then events_time
//	action    #p of one key, and only kinds that ask it to act  event_tags_action, then events_time
//	tag       a tag condition (not h) that tells much           event_tags_value, then events_time
//	channel   #h                                                channels (community_id, h), then events_channel
//	          of these what no thread holds, in a window        events_shown
//	authors   authors                                           events_author
//	class     a tag condition that tells little (k, l)          event_tags_value, then events_time
//	kinds     kinds                                             events_kind
//	time      nothing of all that                               events_time
//
// # What keeps Postgres to it
//
// OFFSET 0 in a subquery forbids the planner to merge it into the query around it: the checks stay checks
// on a candidate, and a look-up by key stays a nested loop. Package store sets the connection's planner
// settings to match: these statements have one good plan whatever the statistics say, and statistics of
// the newest monthly partition are always wrong.
//
// The one exception is a search: a GIN index can only be read as a bitmap. Package store allows bitmaps for
// those statements.
//
// # Search
//
// A search finds the events whose document has the words, as far as the rest of the filter and the access
// rule let it, and ranks the newest 10,000 of them: the best first, of equals the newest. Documents are
// written a little after the events; a result is always read from the events, so what was deleted is gone.
//
// # Meaning
//
// Without a search, a plan returns exactly the stored events for which nostr.Filter.Match holds and that the reader may see
// (package access), with one refinement: #h asks for the events of a channel, and an event's channel is
// its first h tag; a second h tag, or an h tag on an event that belongs to no channel, is not looked at.
// That is what live delivery does, whose topics are channels. Long tag values are compared by the digest
// that postgres.TagKey makes; that is exact unless SHA-256 collides, so nothing is checked twice.
//
// The package does no I/O. Its only state is the table of statements, made once; everything is safe for
// concurrent use.
package plan
