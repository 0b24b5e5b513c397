package topology

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/apiary-relay/apiary/pkg/datadir"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/tools/cluster/internal/supervise"
)

// maxReplicas bounds each service; one machine has no use for more.
const maxReplicas = 64

// Config says how large the cluster is and what it is made of.
type Config struct {
	// Bin holds the services' programs, NATSServer is nats-server's.
	Bin, NATSServer string
	// Data is the directory for logs and state.
	Data string
	// Gateways, Ingests, Fanouts and Searches are how many of each, 1 to 64.
	Gateways, Ingests, Fanouts, Searches int
	// Port is where clients connect.
	Port int
	// DatabaseURL is the Postgres to use. PrivateDatabase says that it is the cluster's own.
	DatabaseURL     string
	PrivateDatabase bool
	// Environment is that of every process, before what the plan adds.
	Environment []string
}

// Process is a process that stays.
type Process struct {
	Spec    supervise.Spec
	Service string
	// Address is what it serves, Admin where its admin listener is.
	Address, Admin string
}

// Plan is a cluster in the order in which it is started.
type Plan struct {
	// URL is where clients connect, through the balancer at Balancer, which spreads over Backends.
	URL, Balancer string
	Backends      []string
	NATSURL       string
	// Migrate runs once before the services, Community once before the gateways.
	Migrate, Community supervise.Spec
	NATS               Process
	// Inner are the services that clients do not reach; they may start in any order.
	Inner    []Process
	Gateways []Process

	supervisor         int
	privateDatabaseURL string
}

// All returns every process that stays.
func (p *Plan) All() []Process {
	all := []Process{p.NATS}
	all = append(all, p.Inner...)
	return append(all, p.Gateways...)
}

// planner carries what all steps of New need.
type planner struct {
	cfg   Config
	ports ports
	env   []string
	self  string // the relay's public key
}

// New plans a cluster: it finds the programs, picks the addresses, and writes NATS's configuration.
func New(ctx context.Context, cfg Config) (*Plan, error) {
	for _, n := range []int{cfg.Gateways, cfg.Ingests, cfg.Fanouts, cfg.Searches} {
		if n < 1 || n > maxReplicas {
			return nil, fmt.Errorf("there must be 1 to %d of each service, not %d", maxReplicas, n)
		}
	}
	p := &planner{cfg: cfg, ports: ports{taken: map[int]bool{}}}
	const databaseVariable = "APIARY_POSTGRES_URL"
	for _, variable := range cfg.Environment {
		if !strings.HasPrefix(variable, databaseVariable) { // that one, and the one that names a file
			p.env = append(p.env, variable)
		}
	}
	// The URL may hold a password: in the environment others cannot read it, in the arguments they could.
	p.env = append(p.env, databaseVariable+"="+cfg.DatabaseURL)

	plan := &Plan{
		URL:        "ws://localhost:" + strconv.Itoa(cfg.Port),
		Balancer:   "127.0.0.1:" + strconv.Itoa(cfg.Port),
		supervisor: os.Getpid(),
	}
	if cfg.PrivateDatabase {
		plan.privateDatabaseURL = cfg.DatabaseURL
	}
	if err := p.relayKey(); err != nil {
		return nil, err
	}
	if err := p.nats(ctx, plan); err != nil {
		return nil, err
	}
	if err := p.services(ctx, plan); err != nil {
		return nil, err
	}
	return plan, nil
}

// relayKey has ingest sign with a key that is made once for the data directory.
func (p *planner) relayKey() error {
	path := filepath.Join(p.cfg.Data, "relay.key")
	text, _, err := datadir.LoadOrCreate(path, func() ([]byte, error) {
		key, err := nostr.GenerateSecretKey()
		if err != nil {
			return nil, err
		}
		return []byte(key.Hex()), nil
	})
	if err != nil {
		return err
	}
	key, err := nostr.ParseSecretKey(string(text))
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	p.self = key.PubKey().String()
	p.env = append(p.env, "APIARY_RELAY_KEY_FILE="+path)
	return nil
}

// services plans everything that is ours.
func (p *planner) services(ctx context.Context, plan *Plan) error {
	database, bus := []string{}, []string{"--nats.url=" + plan.NATSURL}
	searches, err := p.replicas(ctx, "search", p.cfg.Searches, bus)
	if err != nil {
		return err
	}
	ingests, err := p.replicas(ctx, "ingest", p.cfg.Ingests, bus)
	if err != nil {
		return err
	}
	fanouts, err := p.replicas(ctx, "fanout", p.cfg.Fanouts, append(bus, "--search.targets="+addresses(searches)))
	if err != nil {
		return err
	}
	plan.Inner = append(append(append(plan.Inner, ingests...), searches...), fanouts...)
	for _, service := range []string{"audit", "workflow", "media"} {
		one, err := p.replicas(ctx, service, 1, database)
		if err != nil {
			return err
		}
		plan.Inner = append(plan.Inner, one...)
	}
	peers := []string{
		"--nats.url=" + plan.NATSURL,
		"--ingest.targets=" + addresses(ingests),
		"--fanout.targets=" + addresses(fanouts),
		"--search.targets=" + addresses(searches),
		"--self=" + p.self,
	}
	if plan.Gateways, err = p.replicas(ctx, "gateway", p.cfg.Gateways, peers); err != nil {
		return err
	}
	for _, gateway := range plan.Gateways {
		plan.Backends = append(plan.Backends, gateway.Address)
	}
	apiary, err := p.program("apiary")
	if err != nil {
		return err
	}
	plan.Migrate = supervise.Spec{Name: "migrate", Path: apiary, Args: []string{"migrate", "up"}, Env: p.env}
	plan.Community = supervise.Spec{
		Name: "community", Path: apiary, Env: p.env,
		Args: []string{"community", "create", "localhost", "--name", "localhost", "--access", "open", "--ingest", ingests[0].Address},
	}
	return nil
}

// replicas plans n processes of a service.
func (p *planner) replicas(ctx context.Context, service string, n int, args []string) ([]Process, error) {
	path, err := p.program(service)
	if err != nil {
		return nil, err
	}
	var processes []Process
	for i := range n {
		address, err := p.ports.address(ctx)
		if err != nil {
			return nil, err
		}
		admin, err := p.ports.address(ctx)
		if err != nil {
			return nil, err
		}
		name := service + "-" + strconv.Itoa(i+1)
		listen := "--grpc.listen="
		if service == "gateway" {
			listen = "--listen="
		}
		processes = append(processes, Process{
			Service: service, Address: address, Admin: admin,
			Spec: supervise.Spec{
				Name: name, Path: path, Env: p.env, Log: p.log(name), ReadyURL: "http://" + admin + "/readyz",
				Args: append([]string{listen + address, "--admin.listen=" + admin, "--drain.delay=0s", "--drain.timeout=3s"}, args...),
			},
		})
	}
	return processes, nil
}

// program finds one of our own binaries.
func (p *planner) program(name string) (string, error) {
	path, err := filepath.Abs(filepath.Join(p.cfg.Bin, name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find the program of %s (make build makes it): %w", name, err)
	}
	return path, nil
}

func (p *planner) log(name string) string {
	return filepath.Join(p.cfg.Data, "logs", name+".log")
}

// addresses joins what processes serve into a list for a flag.
func addresses(processes []Process) string {
	list := make([]string, len(processes))
	for i, process := range processes {
		list[i] = process.Address
	}
	return strings.Join(list, ",")
}
