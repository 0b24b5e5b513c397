package cli

import (
	"context"
	"fmt"

	"github.com/apiary-relay/apiary/pkg/admin"
	"github.com/apiary-relay/apiary/services/apiary/internal/serve"
)

type serveCmd struct {
	Settings serve.Config `embed:""`
}

func (c *serveCmd) run(ctx context.Context, env env) error {
	return serve.Run(ctx, c.Settings, env.loaded, env.program, env.Out, env.Err)
}

type configPrintCmd struct {
	Settings serve.Config `embed:""`
	Diff     bool         `help:"Print only what differs from the defaults." env:"-"`
}

// Unchecked lets settings be printed that cannot work: who looks for the reason wants to see them.
func (*configPrintCmd) Unchecked() {}

func (c *configPrintCmd) run(_ context.Context, env env) error {
	if err := env.loaded.Print(env.Out, c.Diff); err != nil {
		return err
	}
	if err := env.loaded.Check(); err != nil {
		return usageError{"with these settings it does not start: " + err.Error()}
	}
	return nil
}

type configCheckCmd struct {
	Settings serve.Config `embed:""`
}

// run has little to do: settings that cannot work were refused before.
func (c *configCheckCmd) run(_ context.Context, env env) error {
	for _, warning := range env.loaded.Warnings() {
		fmt.Fprintf(env.Err, "warning: %s\n", warning)
	}
	_, err := fmt.Fprintln(env.Out, "the settings are valid")
	return err
}

type configDocCmd struct {
	Settings serve.Config `embed:""`
}

func (c *configDocCmd) run(_ context.Context, env env) error {
	return env.loaded.Doc(env.Out)
}

type healthcheckCmd struct {
	Data     string `help:"Data directory of the apiary serve to ask. Default: that of apiary serve." placeholder:"DIR"`
	DataHome string `help:"Where the user's data are." env:"XDG_DATA_HOME" hidden:""`
	Address  string `help:"Ask the admin listener at this address instead." env:"-" placeholder:"HOST:PORT" hostport:"empty"`
	Live     bool   `help:"Ask whether it lives, not whether it is ready." env:"-"`
}

func (c *healthcheckCmd) run(ctx context.Context, _ env) error {
	address := c.Address
	if address == "" {
		data, err := serve.DataDir(c.Data, c.DataHome)
		if err != nil {
			return err
		}
		if address, err = serve.AdminAddress(data); err != nil {
			return err
		}
	}
	path := "/readyz"
	if c.Live {
		path = "/healthz"
	}
	return admin.Probe(ctx, address, path)
}
