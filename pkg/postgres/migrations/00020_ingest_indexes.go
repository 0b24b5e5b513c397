package migrations

import "github.com/pressly/goose/v3"

// indexesOfLargeTables are those that were thought of when their tables had rows already. Search goes along all of them.
func indexesOfLargeTables() *goose.Migration {
	return online(20,
		// replies_root is in the order of who reads a thread from its beginning. Read from its end it gives the replies of one
		// second in the wrong order.
		index{"replies_newest", "replies", "(community_id, root_id, created_at DESC, id)"},
		// A page of a thread that goes not as deep as the thread does not read what is deeper. Without ids it serves both orders.
		index{"replies_depth", "replies", "(community_id, root_id, depth, created_at)"},
		// Replies that have expired, so that they are not counted before they are removed.
		index{"replies_expiring", "replies", "(community_id, root_id, expires_at) WHERE expires_at IS NOT NULL"},
		// The kinds are those of the feed needs_action (kind.NeedsAction): few events among very many mentions of a key.
		index{
			"event_tags_action", "event_tags",
			"(community_id, value, created_at DESC, id) WHERE name = 'p' AND kind IN (40007, 46010)",
		},
		// A window of a channel does not read the replies that threads hold: those of a hot one may be many thousands between two
		// messages.
		index{
			"events_shown", "events",
			"(community_id, channel_id, created_at DESC, id) WHERE channel_id IS NOT NULL AND NOT in_thread",
		},
	)
}
