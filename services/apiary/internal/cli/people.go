package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/apiary/internal/client"
)

// The commands about who is in the community.

type inviteCmd struct {
	sendFlags `embed:""`
	For       span    `help:"How long the code is good, such as 12h or 7d, at most 30d. Default: the relay's, 3 days." env:"-" placeholder:"TIME"`
	Uses      *uint32 `help:"How many keys may join with it. Default: as many as like." env:"-" placeholder:"N"`
}

// run prints the code alone, for whoever is to give it to somebody.
func (c *inviteCmd) run(ctx context.Context, env env) error {
	cfg, err := c.config(env)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	code, err := client.Invite(ctx, cfg, client.Wish{Life: time.Duration(c.For), Uses: c.Uses})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.Out, code)
	return err
}

type joinCmd struct {
	sendFlags    `embed:""`
	Code         string `arg:"" help:"The invite code."`
	AcceptPolicy string `help:"Accept the relay's policy that has this version. Without it the command says whether there is one, and where to read it." env:"-" placeholder:"VERSION"`
	ConfirmAge   bool   `help:"Say that you are as old as the policy asks, with --accept-policy." env:"-"`
}

func (c *joinCmd) run(ctx context.Context, env env) error {
	if c.ConfirmAge && c.AcceptPolicy == "" {
		return usageError{"--confirm-age goes with --accept-policy: run the command without either to see what the relay asks for"}
	}
	cfg, err := c.config(env)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err = client.Join(ctx, cfg, c.Code, client.Acceptance{Version: c.AcceptPolicy, Age: c.ConfirmAge}, env.Err)
	var asked *client.PolicyError
	if errors.As(err, &asked) {
		return errors.New(howToAccept(asked))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Out, "joined %s\n", c.Relay)
	return err
}

// howToAccept says what a policy asks for, and how that is answered.
func howToAccept(asked *client.PolicyError) string {
	text := strings.Builder{}
	text.WriteString(asked.Error())
	for _, page := range []struct{ name, url string }{{"terms", asked.Policy.Terms}, {"privacy", asked.Policy.Privacy}} {
		if page.url != "" {
			fmt.Fprintf(&text, "\n    %-8s %s", page.name, page.url)
		}
	}
	flags := "--accept-policy " + asked.Policy.Version
	if asked.Policy.Age {
		text.WriteString("\n    age      say that you are old enough")
		flags += " --confirm-age"
	}
	text.WriteString("\nWho has read that and accepts it adds: " + flags)
	return text.String()
}

type leaveCmd struct {
	sendFlags `embed:""`
}

func (c *leaveCmd) run(ctx context.Context, env env) error {
	return c.do(ctx, env, nostr.KindRelayLeaveRequest, nostr.Tags{{"-"}}, "left %s", c.Relay)
}
