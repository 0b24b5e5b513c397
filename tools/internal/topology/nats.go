package topology

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/apiary-relay/apiary/pkg/datadir"
	"github.com/apiary-relay/apiary/tools/internal/supervise"
)

// nats plans the NATS server: the real one, with JetStream on disk.
func (p *planner) nats(ctx context.Context, plan *Plan) error {
	path, err := exec.LookPath(p.cfg.NATSServer)
	if err != nil {
		return fmt.Errorf("find nats-server (make tools builds it): %w", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	address, err := p.ports.address(ctx)
	if err != nil {
		return err
	}
	monitor, err := p.ports.address(ctx)
	if err != nil {
		return err
	}
	// A message holds all envelopes of one commit and partition, which may be more than NATS's 1 MiB. Without
	// limits NATS takes three quarters of the free disk and memory for its own, and refuses the streams, whose
	// limits are reserved, where that is too little.
	config := "listen: " + strconv.Quote(address) + "\n" +
		"http: " + strconv.Quote(monitor) + "\n" +
		"max_payload: 8MB\n" +
		"jetstream { store_dir: " + strconv.Quote(filepath.Join(p.cfg.Data, "nats")) + ", max_file_store: 10GB, max_memory_store: 512MB, sync_interval: always }\n"
	file := filepath.Join(p.cfg.Data, "nats.conf")
	if err := datadir.Replace(file, []byte(config)); err != nil {
		return err
	}
	plan.NATSURL = "nats://" + address
	plan.NATS = Process{
		Service: "nats", Address: address, Admin: monitor,
		Spec: supervise.Spec{
			Name: "nats", Path: path, Args: []string{"-c", file}, Env: os.Environ(), Log: p.log("nats"),
			ReadyURL: "http://" + monitor + "/healthz?js-enabled-only=true",
		},
	}
	return nil
}
