package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements about the members of channels. Whoever runs them holds the channel, or its community, exclusively.
const (
	// By channel_members_pkey.
	sqlPutChannelMember = `
INSERT INTO ingest.channel_members (community_id, channel_id, pubkey, role) VALUES ($1, $2, $3, $4)
ON CONFLICT (community_id, channel_id, pubkey) DO UPDATE SET role = excluded.role`

	// By channel_members_pkey.
	sqlDropChannelMember = `
DELETE FROM ingest.channel_members WHERE community_id = $1 AND channel_id = $2 AND pubkey = $3`

	// By communities_pkey, community_members_pkey, agents_pkey, banned_pubkeys_pkey, addresses_pkey and events_time:
	// whether a key may use the community, whose agent it is, and what it says of itself as an agent (kind 10100).
	sqlNewcomer = `
SELECT (c.access = 'open' OR EXISTS (SELECT FROM ingest.admitted m WHERE m.community_id = c.id AND m.pubkey = $2))
        AND NOT EXISTS (SELECT FROM ingest.barred b WHERE b.community_id = c.id AND b.pubkey = $2),
    (SELECT a.owner FROM ingest.agents a WHERE a.community_id = c.id AND a.pubkey = $2),
    (SELECT e.raw FROM ingest.addresses a
        JOIN ingest.events e ON e.community_id = a.community_id AND e.created_at = a.created_at AND e.id = a.id
        WHERE a.community_id = c.id AND a.kind = 10100 AND a.pubkey = $2 AND a.d = '')
FROM ingest.communities c WHERE c.id = $1`
)

func (x *change) putUser(ctx context.Context, e *entry, p *policy.PutUser) (policy.Verdict, error) {
	actor := e.Event.PubKey
	g, err := x.group(ctx, e.Channel, actor, p.Target)
	if err != nil {
		return policy.Verdict{}, err
	}
	self := p.Target == actor
	if v := p.Judge(g.Group, self); !v.Accepted() {
		return v, nil
	}
	if g.Target != "" {
		if p.Role == "" || p.Role == g.Target {
			return policy.Verdict{}, nil
		}
		return policy.Verdict{}, x.putChannelMember(ctx, g, p.Target, p.Role)
	}
	newcomer, err := x.newcomer(ctx, p.Target)
	if err != nil {
		return policy.Verdict{}, err
	}
	if v := newcomer.Judge(actor, p.Target); !v.Accepted() {
		return v, nil
	}
	role := p.Role
	if role == "" {
		role = policy.ChannelMember
	}
	return policy.Verdict{}, x.addChannelMember(ctx, g, actor, p.Target, role)
}

// newcomer reads what has to be known of a key that is to become a member of a channel.
func (x *change) newcomer(ctx context.Context, key nostr.PubKey) (policy.Newcomer, error) {
	n := policy.Newcomer{Policy: policy.AddAnyone}
	var owner, raw []byte
	if err := x.conn.QueryRow(ctx, sqlNewcomer, x.community, key[:]).Scan(&n.Admitted, &owner, &raw); err != nil {
		return n, fmt.Errorf("read who may add a key: %w", err)
	}
	if owner != nil {
		n.Owner = new(nostr.PubKey(owner))
	}
	var profile struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(raw, &profile) == nil {
		n.Policy = policy.ParseAddPolicy(profile.Content)
	}
	return n, nil
}

// putChannelMember changes a member's role.
func (x *change) putChannelMember(ctx context.Context, g *group, key nostr.PubKey, role policy.ChannelRole) error {
	if _, err := x.conn.Exec(ctx, sqlPutChannelMember, x.community, g.id, key[:], role); err != nil {
		return fmt.Errorf("put member of channel: %w", err)
	}
	if !role.Manages() {
		if err := x.closeInvitesOf(ctx, g, key); err != nil {
			return err
		}
	}
	if err := x.raiseChannel(ctx, g); err != nil {
		return err
	}
	return x.snapshot(ctx, g, members)
}

// addChannelMember makes a key a member, and has the relay say so.
func (x *change) addChannelMember(ctx context.Context, g *group, actor, key nostr.PubKey, role policy.ChannelRole) error {
	if err := x.putChannelMember(ctx, g, key, role); err != nil {
		return err
	}
	x.say(g, notice{Type: "member_joined", Actor: actor.String(), Target: key.String()})
	x.notify(g, nostr.KindMemberAdded, actor, key)
	return nil
}

// dropChannelMember removes a member, and has the relay say so. What commits later carries a newer access version, so
// that the key gets nothing of it.
func (x *change) dropChannelMember(ctx context.Context, g *group, actor, key nostr.PubKey) error {
	if _, err := x.conn.Exec(ctx, sqlDropChannelMember, x.community, g.id, key[:]); err != nil {
		return fmt.Errorf("remove member of channel: %w", err)
	}
	if err := x.closeInvitesOf(ctx, g, key); err != nil {
		return err
	}
	if err := x.raiseChannel(ctx, g); err != nil {
		return err
	}
	n := notice{Type: "member_removed", Actor: actor.String(), Target: key.String()}
	if actor == key {
		n.Type = "member_left"
	}
	x.say(g, n)
	x.notify(g, nostr.KindMemberRemoved, actor, key)
	return x.snapshot(ctx, g, members)
}

func (x *change) removeUser(ctx context.Context, e *entry, r *policy.RemoveUser) (policy.Verdict, error) {
	actor := e.Event.PubKey
	g, err := x.group(ctx, e.Channel, actor, r.Target)
	if err != nil {
		return policy.Verdict{}, err
	}
	if v := r.Judge(g.Group, r.Target == actor); !v.Accepted() {
		return v, nil
	}
	return policy.Verdict{}, x.dropChannelMember(ctx, g, actor, r.Target)
}

// joinChannel makes the author of a request a member. Clients learn who is a member from events of kind 9000, so the
// relay signs one (NIP-29).
func (x *change) joinChannel(ctx context.Context, e *entry, j *policy.JoinChannel) (policy.Verdict, error) {
	actor := e.Event.PubKey
	g, err := x.group(ctx, e.Channel, actor, actor)
	if err != nil {
		return policy.Verdict{}, err
	}
	good, err := x.isChannelInvite(ctx, g, j.Code)
	if err != nil {
		return policy.Verdict{}, err
	}
	if v := j.Judge(g.Group, good); !v.Accepted() {
		return v, nil
	}
	if err := x.addChannelMember(ctx, g, actor, actor, policy.ChannelMember); err != nil {
		return policy.Verdict{}, err
	}
	x.draft(draft{kind: nostr.KindPutUser, channel: g.key.H, tags: nostr.Tags{
		{"h", g.key.H}, {"p", actor.String(), string(policy.ChannelMember)},
	}})
	return policy.Verdict{}, nil
}

// leaveChannel removes the author of a request, for which the relay signs an event of kind 9001 (NIP-29).
func (x *change) leaveChannel(ctx context.Context, e *entry, l *policy.LeaveChannel) (policy.Verdict, error) {
	actor := e.Event.PubKey
	g, err := x.group(ctx, e.Channel, actor, actor)
	if err != nil {
		return policy.Verdict{}, err
	}
	if v := l.Judge(g.Group); !v.Accepted() {
		return v, nil
	}
	if err := x.dropChannelMember(ctx, g, actor, actor); err != nil {
		return policy.Verdict{}, err
	}
	x.draft(draft{kind: nostr.KindRemoveUser, channel: g.key.H, tags: nostr.Tags{{"h", g.key.H}, {"p", actor.String()}}})
	return policy.Verdict{}, nil
}
