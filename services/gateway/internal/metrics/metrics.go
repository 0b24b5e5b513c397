// Package metrics holds the gateway's instruments: one struct, built once from the injected meter
// and handed to every internal package.
//
// It owns names, units, buckets and attribute sets; every label value comes from a closed set, and
// attribute sets are built here, not per call. Instruments are safe for concurrent use. Hot paths
// count locally and add once per batch.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
)

// Metrics are the instruments of one gateway.
type Metrics struct {
	connections metric.Int64UpDownCounter
	upgrades    metric.Int64Counter
	closes      metric.Int64Counter
	framesIn    metric.Int64Counter
	framesOut   *tally
	bytesOut    *tally
	flushes     *tally
	drops       metric.Int64Counter
	oks         metric.Int64Counter
	eventTime   metric.Float64Histogram
	reqTime     metric.Float64Histogram
	countTime   metric.Float64Histogram
	subs        metric.Int64UpDownCounter
	lagged      metric.Int64Counter
	delivered   *tally
	deliveries  *tally
	stale       *tally
	resumes     metric.Int64Counter
	retries     metric.Int64Counter
	links       metric.Int64UpDownCounter
	calls       metric.Int64Counter

	frameLabels map[wire.Label]metric.AddOption
	okReasons   map[fault.Reason]metric.AddOption
	outcomes    map[string]metric.AddOption
}

// seconds are the bucket bounds of the latency histograms.
var seconds = metric.WithExplicitBucketBoundaries(
	0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

// Outcomes of an upgrade, a call, a close, a drop or a resume: the closed set of the outcome label.
const (
	OutcomeAccepted    = "accepted"
	OutcomeFull        = "full"
	OutcomeDraining    = "draining"
	OutcomeUnknownHost = "unknown_host"
	OutcomeUnavailable = "unavailable"
	OutcomeHandshake   = "handshake"
	OutcomePeer        = "peer"
	OutcomeSlow        = "slow"
	OutcomeStuck       = "stuck"
	OutcomeNoPong      = "no_pong"
	OutcomeAuth        = "auth"
	OutcomePolicy      = "policy"
	OutcomeTooBig      = "too_big"
	OutcomeRestart     = "restart"
	OutcomeQueue       = "queue"
	OutcomeHeld        = "held"
	OutcomeNodeLost    = "node_lost"
	OutcomeNodeAway    = "node_away"
	OutcomeOverloaded  = "overloaded"
	OutcomeMoved       = "moved"
	OutcomeGone        = "gone"
	OutcomeBlocked     = "blocked"
	OutcomeInvalid     = "invalid"
)

var outcomes = []string{
	OutcomeAccepted, OutcomeFull, OutcomeDraining, OutcomeUnknownHost, OutcomeUnavailable, OutcomeHandshake,
	OutcomePeer, OutcomeSlow, OutcomeStuck, OutcomeNoPong, OutcomeAuth, OutcomePolicy, OutcomeTooBig,
	OutcomeRestart, OutcomeQueue, OutcomeHeld, OutcomeNodeLost, OutcomeNodeAway, OutcomeOverloaded, OutcomeMoved, OutcomeGone,
	OutcomeBlocked, OutcomeInvalid,
}

// New makes the instruments.
func New(m metric.Meter) (*Metrics, error) {
	b := builder{meter: m}
	x := &Metrics{
		connections: b.gauge("apiary_gateway_connections", "open WebSocket connections"),
		upgrades:    b.counter("apiary_gateway_upgrades_total", "upgrade requests by outcome"),
		closes:      b.counter("apiary_gateway_closes_total", "closed connections by cause"),
		framesIn:    b.counter("apiary_gateway_frames_in_total", "frames read by label"),
		framesOut:   b.tally("apiary_gateway_frames_out_total", "frames written"),
		bytesOut:    b.tally("apiary_gateway_out_bytes_total", "bytes written"),
		flushes:     b.tally("apiary_gateway_flushes_total", "vectored writes"),
		drops:       b.counter("apiary_gateway_drops_total", "event frames dropped, by the bound that was hit"),
		oks:         b.counter("apiary_gateway_oks_total", "OK frames by reason"),
		eventTime:   b.seconds("apiary_gateway_event_seconds", "time from an EVENT frame to its OK"),
		reqTime:     b.seconds("apiary_gateway_req_seconds", "time from a REQ frame to its EOSE or CLOSED"),
		countTime:   b.seconds("apiary_gateway_count_seconds", "time from a COUNT frame to its answer"),
		subs:        b.gauge("apiary_gateway_subscriptions", "open subscriptions"),
		lagged:      b.counter("apiary_gateway_lagged_total", "subscriptions closed because they lagged"),
		delivered:   b.tally("apiary_gateway_delivered_total", "event frames handed to subscriptions live"),
		deliveries:  b.tally("apiary_gateway_deliveries_total", "deliveries received from fan-out nodes"),
		stale:       b.tally("apiary_gateway_duplicates_total", "deliveries dropped because the subscription has them"),
		resumes:     b.counter("apiary_gateway_resumes_total", "attachments placed again, by cause"),
		retries:     b.counter("apiary_gateway_submit_retries_total", "submissions sent a second time"),
		links:       b.gauge("apiary_gateway_fanout_links", "open streams to fan-out nodes"),
		calls:       b.counter("apiary_gateway_calls_total", "signed HTTP requests (NIP-98) by outcome"),

		frameLabels: make(map[wire.Label]metric.AddOption),
		okReasons:   make(map[fault.Reason]metric.AddOption),
		outcomes:    make(map[string]metric.AddOption),
	}
	for l := wire.LabelUnknown; l <= wire.LabelAuth; l++ {
		x.frameLabels[l] = set(attribute.String("label", l.String()))
	}
	for _, o := range outcomes {
		x.outcomes[o] = set(attribute.String("outcome", o))
	}
	for r := range commonv1.Reason_name {
		x.okReasons[fault.Reason(r)] = set(attribute.String("reason", reasonLabel(fault.Reason(r))))
	}
	return x, errors.Join(b.errs...)
}

func reasonLabel(r fault.Reason) string {
	if r == fault.Accepted {
		return "accepted"
	}
	return r.String()
}

// labelled returns the label of k. What has none, such as a reason that a newer ingest knows, is counted without:
// a nil option would be the end of the process.
func labelled[K comparable](labels map[K]metric.AddOption, k K) metric.AddOption {
	if l, ok := labels[k]; ok {
		return l
	}
	return set()
}

func set(kv ...attribute.KeyValue) metric.AddOption {
	return metric.WithAttributeSet(attribute.NewSet(kv...))
}

// Connected counts a connection that opened (1) or ended (-1).
func (x *Metrics) Connected(ctx context.Context, n int64) { x.connections.Add(ctx, n) }

// Upgrade counts an upgrade request.
func (x *Metrics) Upgrade(ctx context.Context, outcome string) {
	x.upgrades.Add(ctx, 1, labelled(x.outcomes, outcome))
}

// Closed counts the end of a connection by its cause.
func (x *Metrics) Closed(ctx context.Context, outcome string) {
	x.closes.Add(ctx, 1, labelled(x.outcomes, outcome))
}

// FrameIn counts a frame that was read; LabelUnknown for one that could not be understood.
func (x *Metrics) FrameIn(ctx context.Context, label wire.Label) {
	if label > wire.LabelAuth {
		label = wire.LabelUnknown
	}
	x.framesIn.Add(ctx, 1, labelled(x.frameLabels, label))
}

// Flushed counts one vectored write.
func (x *Metrics) Flushed(frames, bytes int) {
	x.flushes.Add(1)
	x.framesOut.Add(int64(frames))
	x.bytesOut.Add(int64(bytes))
}

// Dropped counts event frames that found no room.
func (x *Metrics) Dropped(ctx context.Context, outcome string, n int64) {
	x.drops.Add(ctx, n, labelled(x.outcomes, outcome))
}

// OK counts the answer to an EVENT and how long it took.
func (x *Metrics) OK(ctx context.Context, r fault.Reason, seconds float64) {
	x.oks.Add(ctx, 1, labelled(x.okReasons, r))
	x.eventTime.Record(ctx, seconds)
}

// Req records the time from a REQ to EOSE or CLOSED.
func (x *Metrics) Req(ctx context.Context, seconds float64) { x.reqTime.Record(ctx, seconds) }

// Count records the time from a COUNT to its answer.
func (x *Metrics) Count(ctx context.Context, seconds float64) { x.countTime.Record(ctx, seconds) }

// Subscribed counts subscriptions that opened or closed.
func (x *Metrics) Subscribed(ctx context.Context, n int64) { x.subs.Add(ctx, n) }

// Lagged counts a subscription that was told to resubscribe.
func (x *Metrics) Lagged(ctx context.Context, outcome string) {
	x.lagged.Add(ctx, 1, labelled(x.outcomes, outcome))
}

// Delivery counts deliveries from a fan-out node: handed n times to a subscription, stale times known already
// to one.
func (x *Metrics) Delivery(deliveries, n, stale int64) {
	x.deliveries.Add(deliveries)
	x.delivered.Add(n)
	x.stale.Add(stale)
}

// Resumed counts attachments that were placed again.
func (x *Metrics) Resumed(ctx context.Context, outcome string, n int64) {
	x.resumes.Add(ctx, n, labelled(x.outcomes, outcome))
}

// Retried counts submissions sent a second time.
func (x *Metrics) Retried(ctx context.Context, n int64) { x.retries.Add(ctx, n) }

// Linked counts a fan-out stream that opened (1) or ended (-1).
func (x *Metrics) Linked(ctx context.Context, n int64) { x.links.Add(ctx, n) }

// Called counts a signed HTTP request.
func (x *Metrics) Called(ctx context.Context, outcome string) {
	x.calls.Add(ctx, 1, labelled(x.outcomes, outcome))
}

// builder makes instruments and collects what goes wrong.
type builder struct {
	meter metric.Meter
	errs  []error
}

func (b *builder) counter(name, desc string) metric.Int64Counter {
	c, err := b.meter.Int64Counter(name, metric.WithDescription(desc))
	b.note(name, err)
	return c
}

// tally is a counter without labels for what happens at every write: an instrument's Add looks for a span in its context
// and for its series first, which costs as much as a small write's share of everything else.
type tally struct{ atomic.Int64 }

func (b *builder) tally(name, desc string) *tally {
	t := new(tally)
	_, err := b.meter.Int64ObservableCounter(name, metric.WithDescription(desc),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(t.Load())
			return nil
		}))
	b.note(name, err)
	return t
}

func (b *builder) gauge(name, desc string) metric.Int64UpDownCounter {
	c, err := b.meter.Int64UpDownCounter(name, metric.WithDescription(desc))
	b.note(name, err)
	return c
}

func (b *builder) seconds(name, desc string) metric.Float64Histogram {
	h, err := b.meter.Float64Histogram(name, metric.WithDescription(desc), metric.WithUnit("s"), seconds)
	b.note(name, err)
	return h
}

func (b *builder) note(name string, err error) {
	if err != nil {
		b.errs = append(b.errs, fmt.Errorf("make instrument %s: %w", name, err))
	}
}
