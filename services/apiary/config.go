package apiary

import (
	"errors"
	"fmt"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/fanout"
	"github.com/apiary-relay/apiary/services/gateway"
	"github.com/apiary-relay/apiary/services/ingest"
	"github.com/apiary-relay/apiary/services/search"
)

// Config is the settings of all services.
type Config struct {
	Gateway gateway.Config `embed:"" prefix:"gateway."`
	Ingest  ingest.Config  `embed:"" prefix:"ingest."`
	Fanout  fanout.Config  `embed:"" prefix:"fanout."`
	Search  search.Config  `embed:"" prefix:"search."`
}

// DefaultConfig returns the services' defaults.
func DefaultConfig() Config {
	return Config{
		Gateway: gateway.DefaultConfig(), Ingest: ingest.DefaultConfig(),
		Fanout: fanout.DefaultConfig(), Search: search.DefaultConfig(),
	}
}

// Same lists the settings that several services have and that are one setting here: what one is given holds for all.
func Same() [][]string {
	return [][]string{
		{"gateway.partitions", "ingest.partitions", "fanout.partitions"},
		{"gateway.limit", "search.limit"},
		{"gateway.max-content", "ingest.max-content"},
		{"gateway.created-at-window", "ingest.max-skew"},
	}
}

// Validate reports settings that contradict each other. Each service validates its own.
func (c *Config) Validate() error {
	var errs []error
	if p := c.Ingest.Partitions; c.Gateway.Partitions != p || c.Fanout.Partitions != p {
		errs = append(errs, fmt.Errorf("partitions differ: gateway has %d, ingest %d, fanout %d",
			c.Gateway.Partitions, p, c.Fanout.Partitions))
	}
	// What the gateway tells clients is what the others enforce.
	if c.Gateway.MaxContent != c.Ingest.MaxContent {
		errs = append(errs, fmt.Errorf("gateway.max-content is %d and ingest.max-content is %d", c.Gateway.MaxContent, c.Ingest.MaxContent))
	}
	if c.Gateway.CreatedAtWindow != c.Ingest.MaxSkew {
		errs = append(errs, fmt.Errorf("gateway.created-at-window is %s and ingest.max-skew is %s", c.Gateway.CreatedAtWindow, c.Ingest.MaxSkew))
	}
	if err := c.checkRelayKey(); err != nil {
		errs = append(errs, err)
	}
	if c.Gateway.Limit != c.Search.Limit {
		errs = append(errs, fmt.Errorf("gateway.limit is %d and search.limit is %d", c.Gateway.Limit, c.Search.Limit))
	}
	return errors.Join(errs...)
}

// checkRelayKey holds what clients are told of the relay's key against the key. One that cannot be read is ingest's
// to report.
func (c *Config) checkRelayKey() error {
	self := c.self()
	switch {
	case c.Gateway.Self == "" || c.Gateway.Self == self:
		return nil
	case !c.Ingest.RelayKey.IsSet():
		return errors.New("gateway.self is the public key of ingest.relay-key, which is not given: give both, or neither")
	case self == "":
		return nil
	}
	return fmt.Errorf("gateway.self must be the public key of ingest.relay-key, %s; it need not be given", self)
}

// self returns the public key of the relay's key, empty without one that can be read.
func (c *Config) self() string {
	key, err := nostr.ParseSecretKey(strings.TrimSpace(c.Ingest.RelayKey.Reveal()))
	if err != nil {
		return ""
	}
	return key.PubKey().String()
}
