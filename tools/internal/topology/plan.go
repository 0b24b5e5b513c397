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
	"github.com/apiary-relay/apiary/tools/internal/supervise"
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
	// SpareFanouts are planned besides, 0 to 64: everybody knows their addresses, nobody need start them.
	SpareFanouts int
	// Port is where clients connect.
	Port int
	// DatabaseURL is the Postgres to use. PrivateDatabase says that it is the cluster's own.
	DatabaseURL     string
	PrivateDatabase bool
	// Environment is that of every process, before what the plan adds.
	Environment []string
	// Via, when set, is asked for each connection that a process will make to another, both by name, such as from
	// gateway-1 to fanout-2 or to nats: it returns the address to connect to instead of the other's own.
	Via func(from, to, address string) (string, error)
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
	// Spares are fan-out nodes that may be started at any time, or never.
	Spares []Process

	supervisor         int
	privateDatabaseURL string
}

// All returns every process that stays.
func (p *Plan) All() []Process {
	all := []Process{p.NATS}
	all = append(all, p.Inner...)
	all = append(all, p.Gateways...)
	return append(all, p.Spares...)
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
	if cfg.SpareFanouts < 0 || cfg.SpareFanouts > maxReplicas {
		return nil, fmt.Errorf("there may be up to %d spare fan-out nodes, not %d", maxReplicas, cfg.SpareFanouts)
	}
	if cfg.Via == nil {
		cfg.Via = func(_, _, address string) (string, error) { return address, nil }
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
	none := func(string) ([]string, error) { return nil, nil }
	bus := p.flags(link{"--nats.url=nats://", []Process{plan.NATS}})
	searches, err := p.replicas(ctx, "search", p.cfg.Searches, bus)
	if err != nil {
		return err
	}
	ingests, err := p.replicas(ctx, "ingest", p.cfg.Ingests, bus)
	if err != nil {
		return err
	}
	fanouts, err := p.replicas(ctx, "fanout", p.cfg.Fanouts+p.cfg.SpareFanouts,
		p.flags(link{"--nats.url=nats://", []Process{plan.NATS}}, link{"--search.targets=", searches}))
	if err != nil {
		return err
	}
	plan.Inner = append(append(append(plan.Inner, ingests...), searches...), fanouts[:p.cfg.Fanouts]...)
	plan.Spares = fanouts[p.cfg.Fanouts:]
	for _, service := range []string{"audit", "workflow", "media"} {
		one, err := p.replicas(ctx, service, 1, none)
		if err != nil {
			return err
		}
		plan.Inner = append(plan.Inner, one...)
	}
	peers := p.flags(link{"--nats.url=nats://", []Process{plan.NATS}},
		link{"--ingest.targets=", ingests}, link{"--fanout.targets=", fanouts}, link{"--search.targets=", searches})
	plan.Gateways, err = p.replicas(ctx, "gateway", p.cfg.Gateways, func(name string) ([]string, error) {
		args, err := peers(name)
		return append(args, "--self="+p.self), err
	})
	if err != nil {
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
		Args: []string{"community", "create", "localhost", "--name", "localhost", "--access", "open", "--if-missing", "--ingest", ingests[0].Address},
	}
	return nil
}

// link is a flag that names processes to connect to: the flag up to its value, and those.
type link struct {
	flag string
	to   []Process
}

// flags returns the flags that tell a process, by name, how to reach others.
func (p *planner) flags(links ...link) func(from string) ([]string, error) {
	return func(from string) ([]string, error) {
		var args []string
		for _, l := range links {
			list := make([]string, len(l.to))
			for i, process := range l.to {
				address, err := p.cfg.Via(from, process.Spec.Name, process.Address)
				if err != nil {
					return nil, fmt.Errorf("connect %s to %s: %w", from, process.Spec.Name, err)
				}
				list[i] = address
			}
			args = append(args, l.flag+strings.Join(list, ","))
		}
		return args, nil
	}
}

// replicas plans n processes of a service; args returns what a process, by name, gets besides its addresses.
func (p *planner) replicas(ctx context.Context, service string, n int, args func(name string) ([]string, error)) ([]Process, error) {
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
		more, err := args(name)
		if err != nil {
			return nil, err
		}
		listen := "--grpc.listen="
		if service == "gateway" {
			listen = "--listen="
		}
		processes = append(processes, Process{
			Service: service, Address: address, Admin: admin,
			Spec: supervise.Spec{
				Name: name, Path: path, Env: p.env, Log: p.log(name), ReadyURL: "http://" + admin + "/readyz",
				Args: append([]string{listen + address, "--admin.listen=" + admin, "--drain.delay=0s", "--drain.timeout=3s"}, more...),
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
