package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements of conversations. Whoever runs them holds the community's conversations, or the community, exclusively.
const (
	// By channels_participants.
	sqlConversation = `SELECT h FROM ingest.channels WHERE community_id = $1 AND participants = $2`

	// Conflicts on channels_participants, which the exclusive lock rules out. All who are in it are equal.
	sqlCreateConversation = `
WITH made AS (
    INSERT INTO ingest.channels (community_id, h, type, visibility, participants, snapshot_due, created_by)
    VALUES ($1, $2, 'dm', 'private', $3, $4, $5)
    RETURNING id, acl_version
), joined AS (
    INSERT INTO ingest.channel_members (community_id, channel_id, pubkey, role)
    SELECT $1, made.id, q.pubkey, 'member' FROM made, unnest($6::bytea[]) AS q (pubkey)
)
SELECT id, acl_version FROM made`

	// By channels_h_key and channel_members_pkey. No row is changed when the conversation is hidden, or shown, already.
	sqlHideConversation = `
UPDATE ingest.channel_members m SET hidden_at = CASE WHEN $4 THEN now() END
FROM ingest.channels c
WHERE c.community_id = $1 AND c.h = $2 AND m.community_id = $1 AND m.channel_id = c.id AND m.pubkey = $3
    AND (m.hidden_at IS NOT NULL) <> $4`

	// By channel_members_hidden and channels_pkey.
	sqlHidden = `
SELECT c.h FROM ingest.channel_members m
JOIN ingest.channels c ON c.community_id = m.community_id AND c.id = m.channel_id
WHERE m.community_id = $1 AND m.pubkey = $2 AND m.hidden_at IS NOT NULL
ORDER BY m.hidden_at, c.id LIMIT $3`

	// By channel_members_hidden. The last second counts whole.
	sqlForgetHidden = `
UPDATE ingest.channel_members SET hidden_at = NULL
WHERE community_id = $1 AND pubkey = $2 AND hidden_at IS NOT NULL AND hidden_at < to_timestamp($3::bigint + 1)`
)

// participants names the set of keys that a conversation is of, each of them once: it does not depend on who opens it.
func participants(keys []nostr.PubKey) []byte {
	sorted := slices.SortedFunc(slices.Values(keys), func(a, b nostr.PubKey) int { return bytes.Compare(a[:], b[:]) })
	set := sha256.New()
	for _, key := range sorted {
		set.Write(key[:])
	}
	return set.Sum(nil)
}

// newConversationID returns a random UUID (version 4): an id that follows from the participants would let others find
// out who talks to whom, and take it first.
func newConversationID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// conversation returns the id of the conversation of a set of participants, empty if there is none.
func (x *change) conversation(ctx context.Context, set []byte) (h string, err error) {
	err = x.conn.QueryRow(ctx, sqlConversation, x.community, set).Scan(&h)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("look for a conversation: %w", err)
	}
	return h, nil
}

// company returns whom a command brings together, its author included and each once; or why not. It is nobody for other
// commands.
func (x *change) company(ctx context.Context, e *entry) ([]nostr.PubKey, policy.Verdict, error) {
	switch asks := e.Command.Asks.(type) {
	case *policy.OpenConversation:
		return append([]nostr.PubKey{e.Event.PubKey}, asks.Others...), policy.Verdict{}, nil
	case *policy.AddToConversation:
		g, err := x.group(ctx, asks.H, e.Event.PubKey, e.Event.PubKey)
		if err != nil {
			return nil, policy.Verdict{}, err
		}
		if v := asks.Judge(g.Group); !v.Accepted() {
			return nil, v, nil
		}
		list, err := x.channelRoster(ctx, g, policy.MaxInConversation)
		if err != nil {
			return nil, policy.Verdict{}, err
		}
		keys := slices.Clone(asks.More)
		for _, m := range list {
			if !slices.Contains(keys, m.key) {
				keys = append(keys, m.key)
			}
		}
		if len(keys) > policy.MaxInConversation {
			return nil, policy.TooManyParticipants, nil
		}
		return keys, policy.Verdict{}, nil
	}
	return nil, policy.Verdict{}, nil
}

// openConversation opens the conversation that a command asks for. One that is there already is shown again to its author,
// whatever has become of the others; a new one is made of keys only that may be brought into channels.
func (x *change) openConversation(ctx context.Context, e *entry) (policy.Verdict, error) {
	actor := e.Event.PubKey
	keys, v, err := x.company(ctx, e)
	if err != nil || !v.Accepted() {
		return v, err
	}
	set := participants(keys)
	h, err := x.conversation(ctx, set)
	switch {
	case err != nil:
		return policy.Verdict{}, err
	case h != "":
		return policy.Opened(h, false), x.setHidden(ctx, h, actor, false)
	}
	if v, err := x.mayMake(ctx, actor, x.counts.conversations, conversationTypes, "conversations"); err != nil || !v.Accepted() {
		return v, err
	}
	for _, key := range keys {
		newcomer, err := x.newcomer(ctx, key)
		if err != nil {
			return policy.Verdict{}, err
		}
		if v := newcomer.Judge(actor, key); !v.Accepted() {
			return v, nil
		}
	}
	h = newConversationID()
	return policy.Opened(h, true), x.makeConversation(ctx, h, set, actor, keys)
}

// makeConversation makes a conversation of keys, and has the relay tell each of them.
func (x *change) makeConversation(ctx context.Context, h string, set []byte, actor nostr.PubKey, keys []nostr.PubKey) error {
	g := &group{key: policy.ChannelKey{Community: x.community, H: h}}
	g.ChannelSpec = policy.ChannelSpec{Type: policy.Direct, Private: true}
	members, names := make([][]byte, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		members[i], names[i] = bytesOf(key), key.String()
	}
	var version int64
	err := x.conn.QueryRow(ctx, sqlCreateConversation, x.community, h, set, x.key == nil, actor[:], members).Scan(&g.id, &version)
	if err != nil {
		return fmt.Errorf("create conversation: %w", err)
	}
	g.version, g.Exists = uint64(version), true
	x.know(g)
	x.say(g, notice{Type: "dm_created", Actor: actor.String(), Participants: names})
	for _, key := range keys {
		x.notify(g, nostr.KindMemberAdded, actor, key)
	}
	return x.snapshot(ctx, g, everything)
}

// hideConversation hides a conversation from its author's list, as the only one who learns of it.
func (x *change) hideConversation(ctx context.Context, e *entry, hide *policy.HideConversation) (policy.Verdict, error) {
	actor := e.Event.PubKey
	g, err := x.group(ctx, hide.H, actor, actor)
	if err != nil {
		return policy.Verdict{}, err
	}
	if v := hide.Judge(g.Group); !v.Accepted() {
		return v, nil
	}
	hidden, err := x.hidden(ctx, actor)
	switch {
	case err != nil:
		return policy.Verdict{}, err
	case len(hidden) >= policy.MaxHidden && !slices.Contains(hidden, hide.H):
		return policy.TooManyHidden, nil
	}
	return policy.Hidden, x.setHidden(ctx, hide.H, actor, true)
}

// setHidden hides a conversation from one who is in it, or shows it again.
func (x *change) setHidden(ctx context.Context, h string, viewer nostr.PubKey, hide bool) error {
	tag, err := x.conn.Exec(ctx, sqlHideConversation, x.community, h, viewer[:], hide)
	if err != nil {
		return fmt.Errorf("hide or show a conversation: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return nil
	}
	return x.draftHidden(ctx, viewer)
}

// forget shows the author of a request to vanish again what it has hidden until then: its commands are removed, and so is
// what they did for itself. It stays in its conversations, of which others are left with their part.
func (t *transaction) forget(ctx context.Context, conn *pgx.Conn, e *entry) error {
	x := &change{transaction: t, conn: conn, community: e.Community}
	tag, err := x.conn.Exec(ctx, sqlForgetHidden, x.community, e.Event.PubKey[:], e.Event.CreatedAt)
	if err != nil {
		return fmt.Errorf("forget hidden conversations: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return nil
	}
	if err := x.draftHidden(ctx, e.Event.PubKey); err != nil {
		return err
	}
	return x.sign(ctx, e.Traceparent, policy.HiddenBytes)
}

// hidden returns the conversations that a key has hidden, the first one first.
func (x *change) hidden(ctx context.Context, viewer nostr.PubKey) ([]string, error) {
	rows, err := x.conn.Query(ctx, sqlHidden, x.community, viewer[:], policy.MaxHidden)
	if err != nil {
		return nil, fmt.Errorf("read hidden conversations: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read hidden conversations: %w", err)
	}
	return list, nil
}

// draftHidden has the relay sign what a key has hidden (kind 30622), which nobody else may read.
func (x *change) draftHidden(ctx context.Context, viewer nostr.PubKey) error {
	list, err := x.hidden(ctx, viewer)
	if err != nil {
		return err
	}
	d := draft{kind: nostr.KindHiddenConversations, tags: nostr.Tags{{"d", viewer.String()}, {"p", viewer.String()}}}
	for _, h := range list {
		d.tags = append(d.tags, nostr.Tag{"h", h})
	}
	x.draft(d)
	return nil
}

// recall tells whoever repeats the opening of a conversation which one it is: the first answer may have been lost.
func (t *transaction) recall(ctx context.Context, conn *pgx.Conn) error {
	for _, e := range t.entries {
		if e.verdict != policy.Processed || e.Command == nil || !e.Command.Conversations {
			continue
		}
		x := &change{transaction: t, conn: conn, community: e.Community}
		keys, v, err := x.company(ctx, e)
		if err != nil {
			return err
		}
		if len(keys) == 0 || !v.Accepted() {
			continue
		}
		h, err := x.conversation(ctx, participants(keys))
		if err != nil {
			return err
		}
		if h != "" {
			e.recalled = policy.Opened(h, false)
		}
	}
	return nil
}
