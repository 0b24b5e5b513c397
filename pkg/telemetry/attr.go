package telemetry

import "github.com/apiary-relay/apiary/pkg/tenant"

// Attribute keys of log lines and spans. One name per thing, in every service.
const (
	KeyService   = "service"
	KeyVersion   = "version"
	KeyTraceID   = "trace_id"
	KeySpanID    = "span_id"
	KeyCommunity = tenant.LogKey
	KeyError     = "error"
	KeyRef       = "ref"
	KeyReason    = "reason"
	KeyPeer      = "peer"
	KeyPartition = "partition"
	KeyKind      = "kind"
	KeyEventID   = "event_id"
	KeyConn      = "conn"
	KeySub       = "sub"
	KeyTook      = "took"
)

// ServiceBuckets are the histogram boundaries, in seconds, for calls between services.
var ServiceBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// SizeBuckets are the histogram boundaries, in bytes, for frames and messages.
var SizeBuckets = []float64{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20}
