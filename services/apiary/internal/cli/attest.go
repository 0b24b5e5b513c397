package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
	"github.com/apiary-relay/apiary/pkg/nostr/nip19"
)

type attestCmd struct {
	keyFlag    `embed:""`
	Agent      string `arg:"" help:"Public key of the agent, in hex or as npub."`
	Conditions string `help:"When it holds and of which kinds: kind=1, created_at<1893456000, created_at>1577836800; joined by &." env:"-" placeholder:"TEXT"`
}

// run prints the tag by which the key attests that another one is its agent's (NIP-OA), as JSON. The agent shows it with
// --attestation.
func (c *attestCmd) run(_ context.Context, env env) error {
	agent, err := nip19.ParsePubKey(c.Agent)
	if err != nil {
		return usageError{fmt.Sprintf("%q: %v", c.Agent, err)}
	}
	key, err := c.load(env)
	if err != nil {
		return err
	}
	tag, err := auth.Attest(key, agent, c.Conditions)
	if err != nil {
		return usageError{err.Error()}
	}
	text := json.NewEncoder(env.Out)
	text.SetEscapeHTML(false) // conditions have < and &
	return text.Encode(tag)
}

// parseAttestation reads what attest has printed, for the key that shows it; empty is none.
func parseAttestation(text string, agent nostr.PubKey) (nostr.Tag, error) {
	if text == "" {
		return nil, nil
	}
	var tag nostr.Tag
	if err := json.Unmarshal([]byte(text), &tag); err != nil {
		return nil, usageError{"--attestation is not the JSON array that client attest prints"}
	}
	if _, err := auth.ParseAttestation(tag, agent); err != nil {
		return nil, usageError{fmt.Sprintf("--attestation: %v", err)}
	}
	return tag, nil
}
