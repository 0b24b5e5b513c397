package gateway

import (
	"errors"
	"fmt"
	"time"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nip19"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/pkg/tenant"
	"github.com/apiary-relay/apiary/services/gateway/internal/admit"
	"github.com/apiary-relay/apiary/services/gateway/internal/bridge"
	"github.com/apiary-relay/apiary/services/gateway/internal/conn"
	"github.com/apiary-relay/apiary/services/gateway/internal/edge"
	"github.com/apiary-relay/apiary/services/gateway/internal/live"
	"github.com/apiary-relay/apiary/services/gateway/internal/presence"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
	"github.com/apiary-relay/apiary/services/gateway/internal/submit"
)

// Config is what an operator decides about the gateway. NIP-11 advertises these values.
type Config struct {
	Listen             string   `help:"Address for clients (HTTP and WebSocket)." default:"127.0.0.1:3000" hostport:""`
	TrustForwardedHost bool     `help:"Take the community from the last X-Forwarded-Host; only behind a proxy that sets it."`
	TrustedProxies     []string `help:"Addresses and networks of proxies whose X-Forwarded-For names the client. Without them the client is who opened the TCP connection." placeholder:"NETWORK"`
	MaxConnections     int      `help:"Open WebSocket connections; 0 is no limit." default:"10000"`
	Contact            string   `help:"Operator's public key in hexadecimal, shown in NIP-11 for communities without an owner."`
	Self               string   `help:"The relay's own public key in hexadecimal, shown in NIP-11."`
	OperatorHosts      []string `help:"Hosts at which the operators' API is served, and nothing else; no community can have them. Needs operator-keys." placeholder:"HOST"`
	OperatorKeys       []string `help:"Public keys, in hexadecimal or as npub, that may use the operators' API. Needs operator-hosts." placeholder:"PUBKEY"`
	Partitions         uint32   `help:"Number of partitions; fixed for the life of the cluster." default:"64"`

	MaxFrame        int           `help:"Bytes of one frame." default:"524288"`
	MaxContent      int           `help:"Largest content of an event in bytes, as ingest enforces it; 0 is no limit." default:"262144"`
	MaxSubs         int           `help:"Open subscriptions of one connection; 0 is no limit." default:"1024"`
	MaxSubValues    int64         `name:"max-sub-values" help:"Values in the filters of all open subscriptions of one connection; a filter counts once for each channel it listens on, and each of these counts 16 besides. 0 is no limit." default:"100000"`
	MaxSubID        int           `name:"max-sub-id" help:"Bytes of a subscription id." default:"256"`
	MaxFilters      int           `help:"Filters in one REQ or COUNT." default:"10"`
	MaxChannels     int           `help:"Values of #h in one REQ or COUNT." default:"128"`
	Limit           int           `help:"Default and largest number of stored events that one filter returns, as search enforces it." default:"500"`
	CreatedAtWindow time.Duration `help:"How far an event's created_at may be from now, as ingest enforces it; 0 is no limit." default:"15m"`

	AuthTimeout time.Duration `help:"Time to answer the challenge (NIP-42); 0 waits for ever." default:"5s"`
	AuthWindow  time.Duration `help:"How far the created_at of an AUTH may be from now." default:"60s"`
	Revalidate  time.Duration `help:"How often the keys of open connections are checked again; 0 never." default:"30s"`

	PingInterval time.Duration `help:"Time between pings; 0 sends none." default:"30s"`
	MissedPongs  int           `help:"Unanswered pings after which a client counts as gone." default:"3"`
	WriteTimeout time.Duration `help:"How long a client may take no byte of what is written to it; twelve times as long for up to 1 MiB." default:"20s"`
	QueueFrames  int           `help:"Event frames that may wait for one client." default:"1000"`
	QueueBytes   int           `help:"Bytes of event frames that may wait for one client." default:"8388608"`
	QueuedBytes  int64         `help:"Bytes of event frames that may wait for all clients together; beyond, each may have a 32nd of queue-bytes. 0 is no limit." default:"1073741824"`
	SlowStrikes  int           `help:"Seconds in a row for which a client's queue may stay full." default:"15"`
	HeldEvents   int           `help:"Live events held for one subscription while its history is sent." default:"1000"`
	HeldBytes    int           `help:"Bytes of live events held for one subscription while its history is sent." default:"8388608"`

	MaxEvents     int           `help:"Events of one connection that may wait for their verdict." default:"128"`
	InFlightBytes int64         `help:"Bytes of all events that may wait for their verdict." default:"134217728"`
	SubmitTimeout time.Duration `help:"Longest wait for a verdict, retry included." default:"15s"`
	SubmitWait    time.Duration `help:"Longest wait for an ingest replica to be reachable." default:"3s"`

	Workers       int           `help:"REQs and COUNTs of one connection that run at a time; the others queue." default:"8"`
	MaxQueries    int64         `help:"Stored queries that run at a time; the others queue." default:"16"`
	MaxNewQueries int64         `help:"Stored queries of connections in their first second that run at a time, three quarters of max-queries at most; the others queue. 0 is as many as may be, and in the all-in-one with its own Postgres as there are processors." default:"0"`
	ConnQueries   int64         `help:"Stored queries of one connection that run at a time." default:"4"`
	HistoryBytes  int64         `help:"Bytes of stored events that may wait for clients which are slower than the database, besides their queues; one connection may use an eighth." default:"134217728"`
	AttachTimeout time.Duration `help:"Longest wait of a REQ for fan-out." default:"5s"`
	CallTimeout   time.Duration `help:"Longest wait for one answer of search." default:"10s"`
	QueryTimeout  time.Duration `help:"Longest time for one stored query, the client's reading included." default:"2m"`
	LiveWait      time.Duration `help:"How long a subscription may be without a fan-out node before it is closed as lagged." default:"30s"`

	SpreadSubscriptions int `help:"Subscriptions here to one topic that one fan-out node serves; more are spread over several nodes. 0 is no limit." default:"5000"`
	SpreadDeliveries    int `help:"Deliveries a second of one topic to clients here that come from one fan-out node; more are spread over several nodes. 0 is no limit." default:"50000"`

	EventRate        int `help:"EVENTs of one connection, a second, one of more than 4 KiB counting once for each 4 KiB; further ones are refused as rate-limited. 0 is no limit." default:"100"`
	EventBurst       int `help:"EVENTs of one connection at once, after it was quiet." default:"1000"`
	ReqRate          int `help:"REQs and COUNTs of one connection, a second; further ones are refused as rate-limited. 0 is no limit." default:"50"`
	ReqBurst         int `help:"REQs and COUNTs of one connection at once, after it was quiet." default:"1200"`
	ReadRate         int `help:"Bytes read from one connection, a second; each message and ping counts 1024 besides. What comes faster waits. 0 is no limit." default:"2097152"`
	ReadBurst        int `help:"Bytes read from one connection at once, after it was quiet." default:"16777216"`
	AddressReadRate  int `help:"Bytes read from all connections of one address, a second, beyond the 32768 (262144 at once, but 32768 when it has just connected) that each may send in any case. What comes faster waits. 0 is no limit." default:"2097152"`
	AddressReadBurst int `help:"The same at once, after the address was quiet." default:"2097152"`
	OffenceRate      int `help:"Broken frames, invalid events and failed logins from one address, a second; who sends more of them is read more slowly. 0 is no limit." default:"50"`
	OffenceBurst     int `help:"Broken frames, invalid events and failed logins from one address at once, after it sent none." default:"1000"`

	AgentEventsPerMinute int `help:"Events that one agent (NIP-OA) may send in a minute, over all its connections to this gateway; those that are not kept do not count. Further ones are refused as rate-limited. 0 is no limit." default:"120"`
	OwnerEventsPerMinute int `help:"The same of all agents of one owner together. 0 is no limit." default:"1200"`
	AgentCallsPerMinute  int `help:"Signed HTTP requests other than events that one agent may make in a minute; further ones are refused as rate-limited. 0 is no limit." default:"600"`

	MaxCalls int `help:"Signed HTTP requests (NIP-98) in hand at a time; further ones are refused." default:"32"`

	HostTTL     time.Duration `name:"host-ttl" help:"How long the community of a host is remembered." default:"5s"`
	DrainWindow time.Duration `help:"Time over which connections are closed when the gateway stops; cut short by the drain timeout." default:"20s"`
}

// DefaultConfig returns the defaults of the tags.
func DefaultConfig() Config { return config.MustDefault(Config{}) }

// maxHostTTL bounds how long a closed or renamed community is still admitted under what it was.
const maxHostTTL = 5 * time.Second

// Validate reports everything that cannot work.
func (c *Config) Validate() error {
	errs := []error{
		config.Positive("partitions", c.Partitions),
		config.Positive("max-frame", c.MaxFrame),
		config.Positive("max-sub-id", c.MaxSubID),
		config.Positive("max-filters", c.MaxFilters),
		config.Positive("max-channels", c.MaxChannels),
		config.Positive("limit", c.Limit),
		config.Positive("auth-window", c.AuthWindow),
		config.Positive("missed-pongs", c.MissedPongs),
		config.Positive("write-timeout", c.WriteTimeout),
		config.Positive("queue-frames", c.QueueFrames),
		config.Positive("queue-bytes", c.QueueBytes),
		config.Positive("slow-strikes", c.SlowStrikes),
		config.Positive("held-events", c.HeldEvents),
		config.Positive("held-bytes", c.HeldBytes),
		config.Positive("max-events", c.MaxEvents),
		config.Positive("in-flight-bytes", c.InFlightBytes),
		config.Positive("submit-timeout", c.SubmitTimeout),
		config.Positive("submit-wait", c.SubmitWait),
		config.Positive("workers", c.Workers),
		config.Positive("max-queries", c.MaxQueries),
		config.NotNegative("max-new-queries", c.MaxNewQueries),
		config.Positive("conn-queries", c.ConnQueries),
		config.Positive("history-bytes", c.HistoryBytes),
		config.Positive("attach-timeout", c.AttachTimeout),
		config.Positive("call-timeout", c.CallTimeout),
		config.Positive("query-timeout", c.QueryTimeout),
		config.Positive("live-wait", c.LiveWait),
		config.Positive("event-burst", c.EventBurst),
		config.Positive("req-burst", c.ReqBurst),
		config.Positive("read-burst", c.ReadBurst),
		config.Positive("address-read-burst", c.AddressReadBurst),
		config.Positive("offence-burst", c.OffenceBurst),
		config.Positive("max-calls", c.MaxCalls),
		config.Positive("host-ttl", c.HostTTL),
		config.NotNegative("spread-subscriptions", c.SpreadSubscriptions),
		config.NotNegative("spread-deliveries", c.SpreadDeliveries),
		config.NotNegative("event-rate", c.EventRate),
		config.NotNegative("req-rate", c.ReqRate),
		config.NotNegative("read-rate", c.ReadRate),
		config.NotNegative("address-read-rate", c.AddressReadRate),
		config.NotNegative("offence-rate", c.OffenceRate),
		config.NotNegative("agent-events-per-minute", c.AgentEventsPerMinute),
		config.NotNegative("owner-events-per-minute", c.OwnerEventsPerMinute),
		config.NotNegative("agent-calls-per-minute", c.AgentCallsPerMinute),
		config.NotNegative("max-connections", c.MaxConnections),
		config.NotNegative("max-content", c.MaxContent),
		config.NotNegative("max-subs", c.MaxSubs),
		config.NotNegative("max-sub-values", c.MaxSubValues),
		config.NotNegative("queued-bytes", c.QueuedBytes),
		config.NotNegative("created-at-window", c.CreatedAtWindow),
		config.NotNegative("auth-timeout", c.AuthTimeout),
		config.NotNegative("revalidate", c.Revalidate),
		config.NotNegative("ping-interval", c.PingInterval),
		config.NotNegative("drain-window", c.DrainWindow),
		config.AtMost("host-ttl", c.HostTTL, maxHostTTL),
		config.AtMost("max-frame", c.MaxFrame, maxMessage),
	}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, p := range []struct{ name, key string }{{"contact", c.Contact}, {"self", c.Self}} {
		_, err := nostr.ParsePubKey(p.key)
		check(p.key == "" || err == nil, "%s must be a public key in hexadecimal, not %q", p.name, p.key)
	}
	check((len(c.OperatorHosts) == 0) == (len(c.OperatorKeys) == 0), "operator-hosts and operator-keys go together")
	for _, host := range c.OperatorHosts {
		_, err := tenant.NormalizeHost(host)
		check(err == nil, "operator-hosts must be hosts, not %q", host)
	}
	for _, key := range c.OperatorKeys {
		_, err := nip19.ParsePubKey(key)
		check(err == nil, "operator-keys must be public keys, not %q", key)
	}
	_, err := edge.ParseNetworks(c.TrustedProxies)
	check(err == nil, "trusted-proxies must be addresses or networks: %w", err)
	return errors.Join(errs...)
}

const (
	// maxMessage leaves room below the 8 MiB of a gRPC message.
	maxMessage = 4 << 20
	// batchEvents bounds one message to ingest, besides its bytes.
	batchEvents = 256
	// submitWindow is what ingest needs to be busy, and no more: in what waits here connections take turns, in what
	// ingest has only keys do.
	submitWindow = 1024
	// controlFrames and controlBytes bound what is never dropped; reading stops at half of it.
	controlFrames = 4096
	controlBytes  = 8 << 20
	// flushFrames and flushBytes bound one vectored write.
	flushFrames = 64
	flushBytes  = 1 << 20
	// maxKeys is how many keys may authenticate on one connection.
	maxKeys = 16
	// maxCounts is how many COUNTs of one connection may be open.
	maxCounts = 32
	// spareConnections is how many TCP connections there may be besides upgraded ones.
	spareConnections = 1024
	// knownHosts is how many hosts the directory remembers.
	knownHosts = 4096

	// callTime is less than the HTTP server's writeTimeout, so that there is an answer.
	callRead = 10 * time.Second
	callTime = 20 * time.Second
	// maxAnswer is the size of the largest answer to a call; with MaxCalls it bounds their memory.
	maxAnswer = 4 << 20

	// reportKeys is how many connected keys one report names, by contract; reportPause the time between two, and
	// reportRetry after one that failed. reportRefresh is when a key is reported again, until ingest has said more.
	reportKeys    = 512
	reportPause   = 100 * time.Millisecond
	reportRetry   = time.Second
	reportRefresh = time.Minute

	slowInterval = time.Second
	closeTimeout = 10 * time.Second
	settleTime   = time.Second
)

func (c *Config) wire() wire.Limits {
	l := wire.DefaultLimits()
	l.Frame, l.Content, l.SubID, l.Filters = c.MaxFrame, c.MaxContent, c.MaxSubID, c.MaxFilters
	l.Search = nostrpb.MaxSearch
	return l
}

func (c *Config) conn() conn.Config {
	return conn.Config{
		FrameLimit:  c.MaxFrame,
		QueueFrames: c.QueueFrames, QueueBytes: c.QueueBytes, Pressure: conn.NewPressure(c.QueuedBytes),
		ControlFrames: controlFrames, ControlBytes: controlBytes,
		FlushFrames: flushFrames, FlushBytes: flushBytes,
		PingInterval: c.PingInterval, MissedPongs: c.MissedPongs,
		SlowStrikes: c.SlowStrikes, SlowInterval: slowInterval,
		CloseTimeout: closeTimeout,
	}
}

func (c *Config) session() session.Config {
	return session.Config{
		Wire:        c.wire(),
		AuthTimeout: c.AuthTimeout, AuthWindow: c.AuthWindow, MaxKeys: maxKeys,
		MaxSubs: c.MaxSubs, MaxSubValues: c.MaxSubValues, MaxChannels: c.MaxChannels, Limit: c.Limit,
		MaxEvents: c.MaxEvents, MaxEventBytes: c.InFlightBytes,
		MaxCounts: maxCounts, Workers: c.Workers, MaxQueries: c.MaxQueries, MaxNewQueries: c.MaxNewQueries,
		ConnQueries: c.ConnQueries, HistoryBytes: c.HistoryBytes,
		HeldEvents: c.HeldEvents, HeldBytes: c.HeldBytes,
		AttachTimeout: c.AttachTimeout, CallTimeout: c.CallTimeout, QueryTimeout: c.QueryTimeout,
	}
}

func (c *Config) presence(id string) presence.Config {
	return presence.Config{
		Gateway: id, Page: reportKeys, Pause: reportPause, Retry: reportRetry, Timeout: c.CallTimeout, Refresh: reportRefresh,
	}
}

func (c *Config) submit(id string) submit.Config {
	return submit.Config{
		Gateway:  id,
		Deadline: c.SubmitTimeout, Patience: c.SubmitWait, BatchEvents: batchEvents, BatchBytes: rpc.BatchBytes,
		Window: submitWindow,
	}
}

func (c *Config) admit() admit.Config {
	return admit.Config{
		Events:   admit.Rate{PerSecond: c.EventRate, Burst: c.EventBurst},
		Requests: admit.Rate{PerSecond: c.ReqRate, Burst: c.ReqBurst},
		Bytes:    admit.Rate{PerSecond: c.ReadRate, Burst: c.ReadBurst},
		Offences: admit.Rate{PerSecond: c.OffenceRate, Burst: c.OffenceBurst},
		Excess:   admit.Rate{PerSecond: c.AddressReadRate, Burst: c.AddressReadBurst},

		AgentEvents: c.AgentEventsPerMinute, OwnerEvents: c.OwnerEventsPerMinute, AgentCalls: c.AgentCallsPerMinute,
	}
}

func (c *Config) live() live.Config {
	return live.Config{
		Partitions: c.Partitions, Patience: c.LiveWait, SettleTime: settleTime,
		Spread: live.Spread{Subscriptions: c.SpreadSubscriptions, Deliveries: c.SpreadDeliveries},
	}
}

func (c *Config) bridge() bridge.Config {
	operators, hosts := c.operators()
	return bridge.Config{
		Wire: c.wire(), Calls: c.MaxCalls, ReadTimeout: callRead, Timeout: callTime, Limit: c.Limit, Answer: maxAnswer,
		OperatorHosts: hosts, Operators: operators,
	}
}

// operators are the keys that may use the operators' API, and the hosts where it is, normalised. Validate has found them well-formed.
func (c *Config) operators() (keys map[nostr.PubKey]bool, hosts []string) {
	keys = make(map[nostr.PubKey]bool, len(c.OperatorKeys))
	for _, text := range c.OperatorKeys {
		if key, err := nip19.ParsePubKey(text); err == nil {
			keys[key] = true
		}
	}
	for _, host := range c.OperatorHosts {
		if normal, err := tenant.NormalizeHost(host); err == nil {
			hosts = append(hosts, normal)
		}
	}
	return keys, hosts
}

func (c *Config) directory() edge.DirectoryConfig {
	return edge.DirectoryConfig{TTL: c.HostTTL, Hosts: knownHosts, CallTimeout: c.CallTimeout}
}
