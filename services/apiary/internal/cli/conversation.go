package cli

import (
	"context"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// dmCommands are about conversations (direct messages): channels that have the same members for ever, of which there
// is one for each set of keys. What is said in one is published like in any other channel.
type dmCommands struct {
	Open dmOpenCmd `cmd:"" help:"Open the conversation with these keys, and print its channel."`
	Add  dmAddCmd  `cmd:"" help:"Open the conversation of all who are in another one and these keys, and print its channel."`
	Hide dmHideCmd `cmd:"" help:"Hide a conversation from one's own list until it is opened again."`
}

type dmOpenCmd struct {
	sendFlags `embed:""`
	Pubkey    []string `arg:"" help:"Public keys of the others, in hex or as npub: at most 8."`
}

func (c *dmOpenCmd) run(ctx context.Context, env env) error {
	others, err := keyTags(c.Pubkey)
	if err != nil {
		return err
	}
	return c.create(ctx, env, &nostr.Event{Kind: nostr.KindOpenConversation, Tags: others})
}

type dmAddCmd struct {
	channelFlags `embed:""`
	Pubkey       []string `arg:"" help:"Public keys of those to add, in hex or as npub."`
}

func (c *dmAddCmd) run(ctx context.Context, env env) error {
	more, err := keyTags(c.Pubkey)
	if err != nil {
		return err
	}
	return c.create(ctx, env, &nostr.Event{Kind: nostr.KindAddToConversation, Tags: append(nostr.Tags{{"h", c.Channel}}, more...)})
}

type dmHideCmd struct {
	channelFlags `embed:""`
}

func (c *dmHideCmd) run(ctx context.Context, env env) error {
	return c.inside(ctx, env, nostr.KindHideConversation, nil, "%s is hidden", c.Channel)
}

// keyTags are the p tags of keys.
func keyTags(keys []string) (nostr.Tags, error) {
	var tags nostr.Tags
	for _, text := range keys {
		key, err := parsePubKey(text)
		if err != nil {
			return nil, err
		}
		tags = append(tags, nostr.Tag{"p", key.String()})
	}
	return tags, nil
}
