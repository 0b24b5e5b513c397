package ingest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Config is what an operator decides about ingest.
type Config struct {
	GRPC       rpc.ServerConfig `embed:"" prefix:"grpc."`
	Partitions uint32           `help:"Partitions of the event streams; fixed for the cluster's life and the same in every service." default:"64"`

	RelayKey config.Secret `help:"Secret key in hexadecimal with which the relay signs; self of the gateway is its public key. Without one, what the relay would have to sign is refused or left out; apiary serve makes one in its data directory." placeholder:"HEX"`

	MaxEvent   int           `help:"Largest event in bytes of JSON." default:"524288"`
	MaxContent int           `help:"Largest content of an event in bytes; 0 is no limit but max-event." default:"262144"`
	MaxSkew    time.Duration `help:"How far an event's created_at may be from now, either way; 0 is no limit." default:"15m"`

	AgentsPerOwner       int `help:"Agents that one owner may have in a community (NIP-OA)." default:"100"`
	AgentFramesPerSecond int `help:"Observer frames (NIP-AO) that one agent may send in a second; further ones are refused as rate-limited. 0 is no limit." default:"100"`

	VerifyWorkers int   `help:"Events verified at once, besides a third as many of more than 16 KiB; 0 is three quarters of the cores." default:"0"`
	StreamWindow  int   `help:"Submissions of one stream that may wait for their verdicts." default:"1024"`
	InFlightBytes int64 `help:"Bytes of all submissions that may wait for their verdicts." default:"134217728"`
	QueueEvents   int   `help:"Verified events that may wait for the batch after the next one." default:"4096"`
	BatchEvents   int   `help:"Most events in one transaction." default:"1024"`
	BatchBytes    int   `help:"Most bytes of events in one transaction; fewer where NATS takes only smaller messages (max_payload)." default:"917504"`

	CommitTimeout time.Duration `help:"Longest time a batch may take, retries included." default:"10s"`

	OutboxAge       time.Duration `help:"Age from which an outbox row is overdue and any replica publishes it." default:"3s"`
	OutboxInterval  time.Duration `help:"Time between two looks for overdue outbox rows." default:"1s"`
	ExpiryInterval  time.Duration `help:"Time between two sweeps of expired events (NIP-40); 0 switches them off." default:"30s"`
	ModerationKept  time.Duration `help:"How long the log of moderation is kept; the last 500 entries of each community are, however old. 0 keeps all." default:"8760h"`
	PartitionMonths int           `help:"Monthly table partitions to have ready, the current month included." default:"4"`

	ChannelsPerMember         int `help:"Channels of a community that one key and its agents may have made; owners and admins of the community may make more. 0 is no limit. The same in every replica, as the next three." default:"500"`
	ChannelsPerCommunity      int `help:"Channels that a community may have, archived ones included; 0 is no limit." default:"10000"`
	ConversationsPerMember    int `help:"Conversations (direct messages) of a community that one key and its agents may have opened first; owners and admins of the community may open more. 0 is no limit." default:"1000"`
	ConversationsPerCommunity int `help:"Conversations (direct messages) that a community may have; 0 is no limit." default:"100000"`

	MaxCommunitiesPerOwner int `help:"Communities that one key can own, archived ones included; 0 is no limit. The same in every replica." default:"100"`

	JoinTerms          string `help:"Terms of use, in Markdown, that whoever joins with an invite has to accept first; the same in every replica, as the next two. Needs relay-key, which apiary serve has by itself." placeholder:"MARKDOWN"`
	JoinPrivacy        string `help:"Privacy policy, in Markdown, likewise." placeholder:"MARKDOWN"`
	JoinAgeAttestation bool   `help:"Whoever joins with an invite has to confirm that they are old enough; likewise."`

	PresenceTTL      time.Duration `name:"presence-ttl" help:"How long a user is present after the gateway that has the connection was heard of last; the same in every replica." default:"3m"`
	PresenceMaxBytes int64         `help:"Most bytes that the bucket of presence keeps in memory; what does not fit is not recorded." default:"67108864"`

	StreamReplicas    int   `help:"Copies of each NATS stream: 3 in a NATS cluster, 1 alone." default:"1"`
	EventsMaxBytes    int64 `help:"Most bytes that the stream of committed events keeps on disk; the oldest go first." default:"8589934592"`
	EphemeralMaxBytes int64 `help:"Most bytes that the stream of ephemeral events keeps in memory; the oldest go first." default:"268435456"`
}

// maxAgentsPerOwner bounds what the removal of one member costs, which takes its agents with it.
const maxAgentsPerOwner = 10_000

// minPresenceTTL leaves gateways time to report within a third of it.
const minPresenceTTL = time.Second

// DefaultConfig returns the configuration of a service that was told nothing.
func DefaultConfig() Config { return config.MustDefault(Config{}) }

// Validate reports everything that cannot work.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Partitions > 0, "partitions must be positive")
	check(c.PresenceTTL >= minPresenceTTL, "presence-ttl must be at least %s, not %s", minPresenceTTL, c.PresenceTTL)
	check(c.PresenceMaxBytes > 0, "presence-max-bytes must be positive")
	if _, err := c.relayKey(); err != nil {
		errs = append(errs, err)
	}
	check(c.MaxEvent > 0, "max-event must be positive")
	check(c.MaxContent >= 0, "max-content must not be negative")
	check(c.MaxSkew >= 0, "max-skew must not be negative")
	check(c.AgentsPerOwner > 0 && c.AgentsPerOwner <= maxAgentsPerOwner, "agents-per-owner must be between 1 and %d", maxAgentsPerOwner)
	check(c.AgentFramesPerSecond >= 0, "agent-frames-per-second must not be negative")
	check(c.VerifyWorkers >= 0, "verify-workers must not be negative")
	check(c.StreamWindow > 0, "stream-window must be positive")
	check(c.QueueEvents > 0, "queue-events must be positive")
	check(c.BatchEvents > 0, "batch-events must be positive")
	check(c.BatchBytes >= c.MaxEvent, "batch-bytes must be at least max-event (%d), not %d", c.MaxEvent, c.BatchBytes)
	check(c.InFlightBytes >= int64(c.BatchBytes), "in-flight-bytes must be at least batch-bytes (%d), not %d", c.BatchBytes, c.InFlightBytes)
	check(c.CommitTimeout > 0, "commit-timeout must be positive")
	check(c.OutboxAge > 0, "outbox-age must be positive")
	check(c.OutboxInterval > 0, "outbox-interval must be positive")
	check(c.MaxCommunitiesPerOwner >= 0, "max-communities-per-owner must not be negative")
	check(isJoinText(c.JoinTerms), "join-terms must be text of at most %d bytes", policy.MaxJoinText)
	check(isJoinText(c.JoinPrivacy), "join-privacy must be text of at most %d bytes", policy.MaxJoinText)
	check(c.ChannelsPerMember >= 0, "channels-per-member must not be negative")
	check(c.ChannelsPerCommunity >= 0, "channels-per-community must not be negative")
	check(c.ConversationsPerMember >= 0, "conversations-per-member must not be negative")
	check(c.ConversationsPerCommunity >= 0, "conversations-per-community must not be negative")
	check(c.ExpiryInterval >= 0, "expiry-interval must not be negative")
	check(c.ModerationKept >= 0, "moderation-kept must not be negative")
	check(c.PartitionMonths >= 1 && c.PartitionMonths <= 120, "partition-months must be between 1 and 120")
	check(c.StreamReplicas >= 1 && c.StreamReplicas <= 5, "stream-replicas must be between 1 and 5")
	check(c.EventsMaxBytes > 0, "events-max-bytes must be positive")
	check(c.EphemeralMaxBytes > 0, "ephemeral-max-bytes must be positive")
	return errors.Join(errs...)
}

// CheckKey reports settings that need a relay-key which is not there. It is apart from Validate because the all-in-one has one
// of its own, made after its settings are checked. New checks it too.
func (c *Config) CheckKey() error {
	if c.asksToJoin() && !c.RelayKey.IsSet() {
		return errors.New("join-terms, join-privacy and join-age-attestation need relay-key")
	}
	return nil
}

func (c *Config) asksToJoin() bool {
	return c.JoinTerms != "" || c.JoinPrivacy != "" || c.JoinAgeAttestation
}

func isJoinText(text string) bool { return len(text) <= policy.MaxJoinText && utf8.ValidString(text) }

// joinPolicy returns what whoever joins has to accept, nil for nothing. key is the relay's.
func (c *Config) joinPolicy(key *nostr.SecretKey) *policy.JoinPolicy {
	if !c.asksToJoin() || key == nil {
		return nil
	}
	return policy.NewJoinPolicy(c.JoinTerms, c.JoinPrivacy, c.JoinAgeAttestation, []byte(key.Hex()))
}

// relayKey returns the key that the relay signs with, nil without one.
func (c *Config) relayKey() (*nostr.SecretKey, error) {
	if !c.RelayKey.IsSet() {
		return nil, nil
	}
	key, err := nostr.ParseSecretKey(strings.TrimSpace(c.RelayKey.Reveal()))
	if err != nil {
		return nil, fmt.Errorf("relay-key: %w", err)
	}
	return key, nil
}

// workers is how many verify small events, and large ones. The small ones leave a core to the rest of the process, whose steps of
// microseconds would wait for batches of milliseconds otherwise: what is verified has yet to be committed.
func (c *Config) workers() (small, large int) {
	small = c.VerifyWorkers
	if small == 0 {
		small = max(runtime.GOMAXPROCS(0)*3/4, 1)
	}
	return small, max(small/3, 1)
}
