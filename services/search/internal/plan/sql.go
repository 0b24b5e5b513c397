package plan

import (
	"strconv"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	"github.com/apiary-relay/apiary/services/search/internal/access"
)

// The pieces of a statement. k is a candidate's key (created_at, id), e the event itself, d one value of
// the driver's list. The order everywhere: created_at DESC, id ASC.
const (
	// The conditions on the columns of an event. Lists are NULL when they do not restrict; a driver leaves
	// out the one that it is driven by.
	unexpired = `(e.expires_at IS NULL OR e.expires_at > @now)`
	ofKinds   = `(@kinds::int[] IS NULL OR e.kind = ANY (@kinds::int[]))`
	ofAuthors = `(@authors::bytea[] IS NULL OR e.pubkey = ANY (@authors::bytea[]))`

	// tagOfKinds says ofKinds of a tag's row, before the event is looked up.
	tagOfKinds = `(@kinds::int[] IS NULL OR k.kind = ANY (@kinds::int[]))`

	// lookup finds the event of a key in the one partition it can be in; end closes it.
	//
	// Index: events_time.
	lookup = `
        CROSS JOIN LATERAL (
            SELECT e.created_at, e.id, e.pubkey, e.kind, e.channel_id, e.raw
            FROM ingest.events e
            WHERE e.community_id = @community AND e.created_at = k.created_at AND e.id = k.id
                AND ` + unexpired
	end = ` OFFSET 0
        ) AS e`
	lookupOfAuthors = lookup + " AND " + ofAuthors + end
	lookupChecked   = lookup + " AND " + ofKinds + " AND " + ofAuthors + end

	// span bounds the driver's time, so that partitions outside are not opened.
	spanKey   = `k.created_at BETWEEN @since AND @until`
	spanEvent = `e.created_at BETWEEN @since AND @until`

	// stateInChannel holds for an event of @channels that #h may show. An event's channel is its first h
	// tag, except that the relay-signed state of a channel (39000 to 39003) has the id in a d tag.
	//
	// Index: event_tags_value, for those four kinds only.
	stateInChannel = `(e.kind NOT BETWEEN 39000 AND 39003 OR EXISTS (
            SELECT FROM unnest(@channelkeys::bytea[]) AS v (value)
            WHERE EXISTS (
                SELECT FROM ingest.event_tags h
                WHERE h.community_id = @community AND h.name = 'h' AND h.value = v.value
                    AND h.created_at = e.created_at AND h.id = e.id OFFSET 0) OFFSET 0))`

	// oneTag and manyTags check tag conditions of an event. Values are looked up one by one, here and wherever
	// a list meets an index whose first columns are equal for many rows: of value = ANY (list) the planner may
	// make a filter instead of an index condition, as long as a partition looks empty to it, and read every row
	// of the letter for each candidate.
	//
	// Index: event_tags_value.
	oneTag = `EXISTS (
            SELECT FROM unnest(@values1::bytea[]) AS v (value)
            WHERE EXISTS (
                SELECT FROM ingest.event_tags t
                WHERE t.community_id = @community AND t.name = @tag1 AND t.value = v.value
                    AND t.created_at = e.created_at AND t.id = e.id OFFSET 0) OFFSET 0)`
	manyTags = `@conditions = (
            SELECT count(DISTINCT c.name)
            FROM unnest(@names::text[], @namevalues::bytea[]) AS c (name, value)
            WHERE EXISTS (
                SELECT FROM ingest.event_tags t
                WHERE t.community_id = @community AND t.name = c.name AND t.value = c.value
                    AND t.created_at = e.created_at AND t.id = e.id OFFSET 0))`

	// shown holds for what the index of a channel's window has; the rest of topLevel is for replies from before there was one.
	//
	// Index: events_shown.
	shown = ` AND NOT e.in_thread`

	// topLevel holds for an event that starts a thread, is in none, or answers the first event of one for everybody to see.
	//
	// Index: replies_pkey.
	topLevel = `NOT EXISTS (
            SELECT FROM ingest.replies r
            WHERE r.community_id = @community AND r.id = e.id AND NOT (r.broadcast AND r.depth = 1) OFFSET 0)`

	// matching holds for a document d of the community that has the words. Each document has its community
	// as a word that no text can have, and the query asks for it: so what other communities hold costs nothing.
	// + 0 keeps the planner from an index that would be read from end to end.
	//
	// Index: documents_words.
	query = `websearch_to_tsquery('simple', @words::text)`
	// prefixQuery is query with its last word standing for all that begin with it. The text of a query ends with that word in
	// quotes, or with a bracket behind a phrase that must not be there, and then nothing is changed.
	prefixQuery = `regexp_replace(nullif(websearch_to_tsquery('simple', @words::text)::text, ''), '''$', ''':*')::tsquery`
	matching    = `numnode(` + query + `) > 0
                    AND d.words @@ (` + query + ` && quote_literal('community ' || @community::bigint)::tsquery)
                    AND d.community_id + 0 = @community AND d.created_at + 0 BETWEEN @since AND @until
                    AND (@kinds::int[] IS NULL OR d.kind = ANY (@kinds::int[]))`

	// newest keeps the first of what comes in order from the index.
	newestKey    = "\n        ORDER BY k.created_at DESC, k.id LIMIT @limit"
	newestEvent  = "\n        ORDER BY e.created_at DESC, e.id LIMIT @limit"
	newestRanked = "\n        ORDER BY k.created_at DESC, k.id LIMIT @ranked"
	some         = "\n        LIMIT @limit"

	// afterCursor holds for what comes after the last event of the page before, by the columns of k or e. Events of one
	// second are read again and passed over.
	afterCursor = `.created_at < @cursor OR `
	// firstRows and pageRows end the rows of a statement.
	firstRows = "LIMIT @limit"
	pageRows  = "LIMIT @rows OFFSET @offset"
)

// source is how a driver yields candidates.
type source struct {
	// outer yields the driver's values as d, "" if there is one scan only; it ends with its WHERE clause
	// if it has one, introduced by where.
	outer, where string
	// scan is the FROM clause of what is done for each d, conditions are more of its WHERE clause.
	scan, conditions string
	// byKey is true when scan yields keys k first, and then looks their events up.
	byKey bool
}

var sources = [drivers]source{
	DriverIDs: {
		// Index: event_ids_pkey. The keys are put in order first, then only as many events are looked up as
		// the limit needs.
		scan: `(
            SELECT i.created_at, i.id FROM unnest(@ids::bytea[]) AS d (id)
            CROSS JOIN LATERAL (
                SELECT i.created_at, i.id FROM ingest.event_ids i
                WHERE i.community_id = @community AND i.id = d.id OFFSET 0
            ) AS i
            WHERE i.created_at BETWEEN @since AND @until
            ORDER BY i.created_at DESC, i.id OFFSET 0
        ) AS k` + lookupChecked,
		byKey: true,
	},
	DriverAddress: {
		// Index: addresses_pkey, by its first three columns. Likewise.
		scan: `(
            SELECT a.created_at, a.id FROM unnest(@kinds::int[]) AS dk (kind)
            CROSS JOIN unnest(@authors::bytea[]) AS da (pubkey)
            CROSS JOIN LATERAL (
                SELECT a.created_at, a.id FROM ingest.addresses a
                WHERE a.community_id = @community AND a.kind = dk.kind AND a.pubkey = da.pubkey OFFSET 0
            ) AS a
            WHERE a.created_at BETWEEN @since AND @until
            ORDER BY a.created_at DESC, a.id OFFSET 0
        ) AS k` + lookup + end,
		byKey: true,
	},
	DriverTag: {
		// Index: event_tags_value.
		scan:       `ingest.event_tags k` + lookupOfAuthors,
		conditions: ` AND k.community_id = @community AND k.name = @tag AND k.value = @value AND ` + tagOfKinds + ` AND ` + spanKey,
		byKey:      true,
	},
	DriverChannel: {
		// Index: channels_h_key, then events_channel.
		outer: `unnest(@channels::text[]) AS d (h)
        CROSS JOIN LATERAL (
            SELECT ch.id, ch.visibility FROM ingest.channels ch
            WHERE ch.community_id = @community AND ch.h = d.h OFFSET 0
        ) AS ch`,
		where:      access.ReadableChannel,
		scan:       `ingest.events e`,
		conditions: ` AND e.community_id = @community AND e.channel_id = ch.id AND ` + spanEvent + ` AND ` + unexpired + ` AND ` + ofKinds + ` AND ` + ofAuthors,
	},
	DriverAuthors: {
		// Index: events_author.
		outer:      `unnest(@authors::bytea[]) AS d (pubkey)`,
		scan:       `ingest.events e`,
		conditions: ` AND e.community_id = @community AND e.pubkey = d.pubkey AND ` + spanEvent + ` AND ` + unexpired + ` AND ` + ofKinds,
	},
	DriverKinds: {
		// Index: events_kind.
		outer:      `unnest(@kinds::int[]) AS d (kind)`,
		scan:       `ingest.events e`,
		conditions: ` AND e.community_id = @community AND e.kind = d.kind AND ` + spanEvent + ` AND ` + unexpired,
	},
	DriverWords: {
		// Index: documents_words. The keys are put in order first, as with ids.
		scan: `(
            SELECT d.created_at, d.id FROM (
                SELECT d.created_at, d.id FROM search.documents d
                WHERE ` + matching + ` OFFSET 0
            ) AS d
            WHERE @ids::bytea[] IS NULL OR d.id = ANY (@ids::bytea[])
            ORDER BY d.created_at DESC, d.id OFFSET 0
        ) AS k` + lookupChecked,
		byKey: true,
	},
	DriverAction: {
		// Index: event_tags_action, which has these kinds only. The planner sees that it may be used because they are part of the text.
		scan: `ingest.event_tags k` + lookupOfAuthors,
		conditions: ` AND k.community_id = @community AND k.name = 'p' AND k.kind IN (` + actions() + `) AND k.value = @value AND ` +
			tagOfKinds + ` AND ` + spanKey,
		byKey: true,
	},
	DriverTime: {
		// Index: events_time.
		scan:       `ingest.events e`,
		conditions: ` AND e.community_id = @community AND ` + spanEvent + ` AND ` + unexpired,
	},
}

// actions lists the kinds that have the index event_tags_action.
func actions() string {
	var list []string
	for _, k := range kind.List(func(r kind.Rules) bool { return r.Feeds&kind.NeedsAction != 0 }) {
		list = append(list, strconv.Itoa(int(k)))
	}
	return strings.Join(list, ", ")
}

// manyValues is the tag driver with several values.
//
// Index: event_tags_value, once for each value.
var manyValues = source{
	outer:      `unnest(@values::bytea[]) AS d (value)`,
	scan:       `ingest.event_tags k` + lookupOfAuthors,
	conditions: ` AND k.community_id = @community AND k.name = @tag AND k.value = d.value AND ` + tagOfKinds + ` AND ` + spanKey,
	byKey:      true,
}

// text renders a shape, with parameters written @name.
func text(s Shape) string {
	src := sources[s.Driver]
	if s.Many {
		src = manyValues
	}
	switch s.out {
	case outCount:
		return access.ReaderCTE + "\nSELECT count(*) FROM (\n    SELECT " + distinctIf(s.Many) + "x.id FROM (" +
			candidates(s, src, "e.id", some) + "\n    ) AS x LIMIT @limit\n) AS c"
	case outIDs:
		return access.ReaderCTE + "\nSELECT " + distinctIf(s.Many) + "x.id FROM (" +
			candidates(s, src, "e.id", some) + "\n) AS x LIMIT @limit"
	case outAuthors:
		return access.ReaderCTE + "\nSELECT x.pubkey FROM (" + candidates(s, src, "e.pubkey", some) + "\n) AS x LIMIT @limit"
	case outRows:
	}
	if s.Prefix {
		return strings.ReplaceAll(access.ReaderCTE+ranked(s.rows(), candidates(s, src, "e.created_at, e.id, e.raw", newestRanked)), query, prefixQuery)
	}
	if s.Driver == DriverWords {
		return access.ReaderCTE + ranked(s.rows(), candidates(s, src, "e.created_at, e.id, e.raw", newestRanked))
	}
	newest := newestEvent
	if src.byKey {
		newest = newestKey
	}
	if s.Stepped {
		return access.ReaderCTE + steps(s.rows(), candidates(s, src, "e.created_at, e.id, e.raw", newest))
	}
	if !s.Many {
		return access.ReaderCTE + withinBytes("\n        SELECT x.created_at, x.id, x.raw FROM ("+
			candidates(s, src, "e.created_at, e.id, e.raw", newest)+
			"\n        ) AS x\n        ORDER BY x.created_at DESC, x.id "+s.rows())
	}
	// An event can come once for each value that it has: the keys are made distinct first, and only what
	// is left is read again for its raw bytes.
	return access.ReaderCTE + withinBytes(`
        SELECT k.created_at, k.id, e.raw FROM (
            SELECT DISTINCT x.created_at, x.id FROM (`+candidates(s, src, "e.created_at, e.id", newest)+`
            ) AS x
            ORDER BY x.created_at DESC, x.id `+s.rows()+`
        ) AS k`+lookup+end)
}

// rows returns how many rows a statement of the shape returns, of those that it reads.
func (s Shape) rows() string {
	if s.Paged {
		return pageRows
	}
	return firstRows
}

// steps reads three spans of time one after the other, newest first, and an older one only when those
// before it have not filled the limit. Without it, each of many values would be read up to the limit, and
// all but one limit's worth be thrown away.
func steps(rows, candidates string) string {
	step := func(n, filled string) string {
		in := strings.NewReplacer("@since", "@since"+n, "@until", "@until"+n).Replace(candidates)
		return ",\ns" + n + " AS MATERIALIZED (\n        SELECT x.created_at, x.id, x.raw FROM (" + in +
			"\n        ) AS x" + filled + "\n        ORDER BY x.created_at DESC, x.id LIMIT @limit\n)"
	}
	const count1, count2 = "(SELECT count(*) FROM s1)", "(SELECT count(*) FROM s2)"
	return step("1", "") + step("2", "\n        WHERE "+count1+" < @limit") +
		step("3", "\n        WHERE "+count1+" + "+count2+" < @limit") + withinBytes(`
        SELECT * FROM (SELECT * FROM s1 UNION ALL SELECT * FROM s2 UNION ALL SELECT * FROM s3) AS s
        ORDER BY created_at DESC, id `+rows)
}

// candidates is the driver's scan with all checks, once or for each of the driver's values.
func candidates(s Shape, src source, columns, newest string) string {
	scan := "\n        SELECT " + columns + "\n        FROM " + src.scan +
		checks(s) +
		"\n        WHERE " + access.Admitted + src.conditions + window(s) + after(s, src) + newest
	if src.outer == "" {
		return scan
	}
	where := ""
	if src.where != "" {
		where = "\n        WHERE " + src.where
	}
	return "\n        SELECT y.* FROM " + src.outer + "\n        CROSS JOIN LATERAL (" + scan + "\n        ) AS y" + where
}

// window is the condition on a candidate of a channel that it may be in its window.
func window(s Shape) string {
	if s.Top && s.Driver == DriverChannel {
		return shown
	}
	return ""
}

// after is the condition on a candidate that it is on the page, or behind it.
func after(s Shape, src source) string {
	switch {
	case !s.Paged || s.Driver == DriverWords: // which are in another order
		return ""
	case src.byKey:
		return " AND (k" + afterCursor + "k.id > @after)"
	default:
		return " AND (e" + afterCursor + "e.id > @after)"
	}
}

// checks are the conditions on an event that need more than its own columns.
func checks(s Shape) string {
	var c []string
	switch {
	case s.Driver == DriverChannel: // which has looked at the channel already
	case s.Channel == AnyChannel:
		c = append(c, access.ReadableEvent)
	default:
		c = append(c, access.ReadableInChannels)
	}
	if s.Channel == InChannelWithState {
		c = append(c, stateInChannel)
	}
	switch s.Tags {
	case NoTags:
	case OneTag:
		c = append(c, oneTag)
	case ManyTags:
		c = append(c, manyTags)
	}
	if s.Top {
		c = append(c, topLevel)
	}
	if s.Party {
		c = append(c, access.Party)
	}
	c = append(c, access.Present)
	return "\n        CROSS JOIN LATERAL (SELECT WHERE " + strings.Join(c, "\n            AND ") + " OFFSET 0) AS allowed"
}

// withinBytes keeps of ordered rows those that begin within @bytes of raw JSON. Sizes are read without
// reading the values, so what is cut off is never fetched.
func withinBytes(rows string) string {
	return `
SELECT created_at, id, raw FROM (
    SELECT created_at, id, raw,
        sum(octet_length(raw)) OVER (ORDER BY created_at DESC, id ROWS UNBOUNDED PRECEDING) - octet_length(raw) AS before
    FROM (` + rows + `
    ) AS r
) AS w
WHERE before < @bytes
ORDER BY created_at DESC, id`
}

// ranked keeps the best of the candidates of a search, the newest of those that are as good, within @bytes
// as withinBytes does.
//
// Index: documents_pkey.
func ranked(rows, candidates string) string {
	return `
SELECT created_at, id, raw FROM (
    SELECT created_at, id, raw, rank,
        sum(octet_length(raw)) OVER (ORDER BY rank DESC, created_at DESC, id ROWS UNBOUNDED PRECEDING) - octet_length(raw) AS before
    FROM (
        SELECT x.created_at, x.id, x.raw, d.rank FROM (` + candidates + `
        ) AS x
        CROSS JOIN LATERAL (
            SELECT ts_rank_cd(d.words, ` + query + `) AS rank FROM search.documents d
            WHERE d.community_id = @community AND d.id = x.id OFFSET 0
        ) AS d
        ORDER BY d.rank DESC, x.created_at DESC, x.id ` + rows + `
    ) AS r
) AS w
WHERE before < @bytes
ORDER BY rank DESC, created_at DESC, id`
}

func distinctIf(many bool) string {
	if many {
		return "DISTINCT "
	}
	return ""
}
