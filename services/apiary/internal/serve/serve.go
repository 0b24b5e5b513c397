package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/datadir"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/services/internal/boot"
)

// adminFile holds the address of the admin listener while the process runs.
const adminFile = "admin.addr"

// Run runs the all-in-one until ctx is done. program is how the user called us; what a person should read
// goes to out, logs to logs.
func Run(ctx context.Context, cfg Config, loaded *config.Loaded, program string, out, logs io.Writer) (err error) {
	path, err := DataDir(cfg.Data, cfg.DataHome)
	if err != nil {
		return err
	}
	dir, err := datadir.Open(path)
	if err != nil {
		return explainData(err)
	}
	var p *process
	defer func() { err = errors.Join(err, leave(dir, p)) }()
	if cfg.Listen != "" {
		cfg.Services.Gateway.Listen = cfg.Listen
	}
	if err := checkListen(ctx, cfg.Services.Gateway.Listen); err != nil {
		return err
	}
	if cfg.Process.Admin.Listen, err = adminAddress(ctx, cfg.Process.Admin.Listen); err != nil {
		return err
	}
	cfg.Process.QuietFailure = true
	return boot.Serve(ctx, "apiary", cfg.Process, loaded, logs, func(env *boot.Env) (_ lifecycle.Service, err error) {
		p, err = newProcess(cfg, dir, env, program, out)
		return p, err
	})
}

// leave lets the directory go, with what a start has made in it that was refused. p is nil if it was refused early.
func leave(dir *datadir.Dir, p *process) error {
	switch {
	case p == nil:
		return dir.Discard()
	case p.begun:
		return dir.Close()
	}
	return errors.Join(p.discard(), dir.Discard())
}

// explainData says what to do when the directory cannot be had.
func explainData(err error) error {
	var held *datadir.HeldError
	if errors.As(err, &held) {
		return fmt.Errorf("%w: stop that one, or choose another directory (make up DATA=dir, apiary serve --data dir)", held)
	}
	return fmt.Errorf("%w: choose another directory (make up DATA=dir, apiary serve --data dir)", err)
}

// checkListen finds out before anything is started whether clients can be listened for.
func checkListen(ctx context.Context, address string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("another program listens on %s: stop it, or choose another port (make up PORT=3001, apiary serve --listen 127.0.0.1:3001)", address)
	case err != nil:
		return fmt.Errorf("listen for clients: %w", err)
	}
	return listener.Close()
}

// usualAdmin is where the admin listener is unless something else has that port.
var usualAdmin = config.Loopback(config.PortAdmin)

// adminAddress resolves autoAdmin. Somebody may take the address before it is used; then the start fails
// and says so.
func adminAddress(ctx context.Context, listen string) (string, error) {
	if listen != autoAdmin {
		return listen, nil
	}
	for _, candidate := range []string{usualAdmin, config.Loopback(0)} {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", candidate)
		if err != nil {
			continue
		}
		return listener.Addr().String(), listener.Close()
	}
	return "", errors.New("find an address for the admin listener: none is free, choose one with --admin.listen")
}

// writeAdminAddress records where the admin listener is; remove undoes it.
func writeAdminAddress(dir *datadir.Dir, addr net.Addr) (remove func() error, err error) {
	text := ""
	if addr != nil {
		text = addr.String()
	}
	path := dir.Path(adminFile)
	return func() error { return os.Remove(path) }, datadir.Replace(path, []byte(text+"\n"))
}

// AdminAddress returns the address of the admin listener of the all-in-one that runs on the directory.
func AdminAddress(data string) (string, error) {
	content, err := os.ReadFile(data + "/" + adminFile) //nolint:gosec // the operator's directory
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no apiary serve runs on %s", data)
	}
	if err != nil {
		return "", fmt.Errorf("read the admin listener's address: %w", err)
	}
	address := strings.TrimSpace(string(content))
	if address == "" {
		return "", fmt.Errorf("the apiary serve on %s has no admin listener (admin.listen is empty)", data)
	}
	return address, nil
}

// logPart returns a logger for what is not one of the services.
func logPart(env *boot.Env, part string) *slog.Logger {
	return env.Log.With(slog.String("part", part))
}
