package cluster

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

// Attestation is the tag by which one nostrtest key attests that another one is its agent's (NIP-OA).
func Attestation(tb testing.TB, owner, agent, conditions string) nostr.Tag {
	tb.Helper()
	tag, err := auth.Attest(nostrtest.Key(owner), nostrtest.PubKey(agent), conditions)
	require.NoError(tb, err)
	return tag
}

// DialAgent is DialHost for an agent that shows whose it is.
func DialAgent(tb testing.TB, url, host, name, owner string) *Client {
	tb.Helper()
	c := ConnectHost(tb, url, host, name)
	verdict := c.AuthenticateWith("ws://"+host, nostrtest.Tag(Attestation(tb, owner, name, "")...))
	require.True(tb, verdict.OK, "authenticate %s at %s: %s", name, host, verdict.Message)
	return c
}

// AuthenticateWith is Authenticate by an answer that says more.
func (c *Client) AuthenticateWith(url string, more ...nostrtest.Option) Verdict {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), patience)
	defer cancel()
	verdict, err := c.authenticate(ctx, url, more...)
	require.NoError(c.tb, err)
	return verdict
}

// AttestationHeader is an attestation as a header carries it.
func AttestationHeader(tb testing.TB, tag nostr.Tag) string {
	tb.Helper()
	text, err := json.Marshal(tag)
	require.NoError(tb, err)
	return string(text)
}
