package cli

import (
	"context"

	"github.com/apiary-relay/apiary/services/apiary/internal/operator"
)

type aliasCmd struct {
	directoryFlags `embed:""`
	Host           string `arg:"" help:"A host of the community."`
	Alias          string `arg:"" help:"The host that it is to have as well."`
	Remove         bool   `help:"Take the host from it instead." env:"-"`
}

func (c *aliasCmd) run(ctx context.Context, env env) error {
	return c.with(env, func(d *operator.Directory) error {
		if c.Remove {
			return d.RemoveAlias(ctx, c.Host, c.Alias)
		}
		return d.AddAlias(ctx, c.Host, c.Alias)
	})
}

type transferCmd struct {
	directoryFlags `embed:""`
	Host           string `arg:"" help:"A host of the community."`
	Pubkey         string `arg:"" help:"Public key of the new owner, in hex or as npub."`
	From           string `help:"Public key of the owner before; by default whoever has owned the community longest, or nobody." env:"-" placeholder:"PUBKEY"`
}

func (c *transferCmd) run(ctx context.Context, env env) error {
	return c.with(env, func(d *operator.Directory) error { return d.Transfer(ctx, c.Host, c.Pubkey, c.From) })
}

type archiveCmd struct {
	directoryFlags `embed:""`
	Host           string `arg:"" help:"A host of the community."`
}

func (c *archiveCmd) run(ctx context.Context, env env) error {
	return c.with(env, func(d *operator.Directory) error { return d.Archive(ctx, c.Host) })
}

type unarchiveCmd struct {
	directoryFlags `embed:""`
	Host           string `arg:"" help:"A host of the community."`
}

func (c *unarchiveCmd) run(ctx context.Context, env env) error {
	return c.with(env, func(d *operator.Directory) error { return d.Unarchive(ctx, c.Host) })
}

type communityDeleteCmd struct {
	directoryFlags `embed:""`
	Host           string `arg:"" help:"A host of the community, which must be archived."`
	Owner          string `help:"Public key of its owner: nothing else protects against a wrong host. One that nobody owns is given an owner by transfer." required:"" env:"-" placeholder:"PUBKEY"`
	Request        string `help:"Name of this deletion, 1 to 128 bytes; the same command with the same name says how far it is. By default the host." env:"-" placeholder:"ID"`
}

func (c *communityDeleteCmd) run(ctx context.Context, env env) error {
	request := c.Request
	if request == "" {
		request = c.Host
	}
	return c.with(env, func(d *operator.Directory) error { return d.Delete(ctx, c.Host, c.Owner, request) })
}

type releaseCmd struct {
	directoryFlags `embed:""`
	Host           string `arg:"" help:"The host."`
}

func (c *releaseCmd) run(ctx context.Context, env env) error {
	return c.with(env, func(d *operator.Directory) error { return d.Release(ctx, c.Host) })
}
