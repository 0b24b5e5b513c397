package commit

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/fault"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

// StateReader reads what decides about events that are not stored; *store.Store does.
type StateReader interface {
	ReadState(ctx context.Context, candidates []*policy.Candidate) (*policy.State, error)
}

// Bus publishes; *bus.Bus does.
type Bus interface {
	PublishAsync(ctx context.Context, subject, msgID string, payload []byte) (*bus.Future, error)
}

// Presence records who is online; *presence.Service does.
type Presence interface {
	// Announce records accepted presence events before they are answered, so that whoever asks afterwards gets what
	// they say.
	Announce(ctx context.Context, announcements []*policy.Candidate)
}

// Ephemeral is the flush function of the queue of events that are never stored: they are judged on a short
// read and passed on to the memory stream, whose acknowledgement is what accepts them.
type Ephemeral struct {
	// Store answers who may write.
	Store StateReader
	// Bus takes the events.
	Bus Bus
	// Partitions is the cluster's number of partitions.
	Partitions uint32
	// Timeout bounds one batch.
	Timeout time.Duration
	// Presence is told what is announced to it.
	Presence Presence
	// Frames bounds how often agents send observer frames.
	Frames *Frames
	// Log is for faults; best a sampled one.
	Log *slog.Logger

	batches  uint64 // only the queue's goroutine
	instance string // only the queue's goroutine
}

// sending is one message on its way.
type sending struct {
	items  []Item
	future *bus.Future
	err    error
}

// Flush judges and publishes a batch and answers its items.
func (e *Ephemeral) Flush(ctx context.Context, batch []Item) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	candidates := make([]*policy.Candidate, len(batch))
	for i, it := range batch {
		candidates[i] = it.Candidate()
	}
	state, err := e.Store.ReadState(ctx, candidates)
	if err != nil {
		e.Log.LogAttrs(ctx, slog.LevelWarn, "ephemeral batch not judged", slog.Int("events", len(batch)), slog.Any("error", err))
		answer(batch, policy.Overloaded)
		return
	}
	admitted := make(map[uint32][]Item)
	envelopes := make(map[uint32]*busv1.EnvelopeBatch)
	for _, it := range batch {
		v := policy.Admit(it.Candidate(), state)
		if v.Accepted() {
			v = e.Frames.admit(it.Candidate())
		}
		if !v.Accepted() || it.Candidate().IsDropped() {
			it.Answer(v)
			continue
		}
		header := e.header(it.Candidate(), state)
		p := header.GetPartition()
		if envelopes[p] == nil {
			envelopes[p] = &busv1.EnvelopeBatch{}
		}
		envelopes[p].Envelopes = append(envelopes[p].Envelopes, &commonv1.Envelope{Header: header, Raw: it.Candidate().Raw})
		admitted[p] = append(admitted[p], it)
	}
	e.publish(ctx, admitted, envelopes)
}

func (e *Ephemeral) header(c *policy.Candidate, state *policy.State) *commonv1.Header {
	h := store.NewHeader(c, e.Partitions)
	h.CommunityAclVersion = state.Communities[c.Community].ACLVersion
	h.ChannelAclVersion = state.Channels[c.ChannelKey()].ACLVersion
	h.JudgedAt = state.ReadAt
	return h
}

// publish sends all messages before it waits for the first.
func (e *Ephemeral) publish(ctx context.Context, admitted map[uint32][]Item, envelopes map[uint32]*busv1.EnvelopeBatch) {
	payload, err := store.EncodePartitions(envelopes)
	if err != nil {
		internal := fault.Internal(err)
		e.Log.LogAttrs(ctx, slog.LevelError, "ephemeral batch not encoded", slog.Any("error", internal))
		for _, items := range admitted {
			answer(items, policy.Verdict{Reason: internal.Reason, Message: internal.Message})
		}
		return
	}
	if e.instance == "" {
		e.instance = rand.Text()
	}
	e.batches++
	list := make([]sending, 0, len(admitted))
	for _, p := range payload.GetPartitions() {
		s := sending{items: admitted[p.GetPartition()]}
		// Nobody sends the same batch again, so the id only guards against the client library's own retries.
		id := fmt.Sprintf("%s.%d.%d", e.instance, e.batches, p.GetPartition())
		s.future, s.err = e.Bus.PublishAsync(ctx, subject.Ephemeral(p.GetPartition()), id, p.GetBatch())
		list = append(list, s)
	}
	for _, s := range list {
		if s.err == nil {
			_, s.err = s.future.Wait(ctx)
		}
		if s.err != nil {
			e.Log.LogAttrs(ctx, slog.LevelWarn, "ephemeral batch not published", slog.Int("events", len(s.items)), slog.Any("error", s.err))
			answer(s.items, policy.Undelivered)
			continue
		}
		e.accept(ctx, s.items)
	}
}

// accept answers items whose events are on their way.
func (e *Ephemeral) accept(ctx context.Context, items []Item) {
	var announcements []*policy.Candidate
	var announcing []Item
	for _, it := range items {
		if c := it.Candidate(); c.IsAnnouncement() {
			announcements, announcing = append(announcements, c), append(announcing, it)
		} else {
			it.Answer(policy.Verdict{})
		}
	}
	if len(announcements) > 0 {
		e.Presence.Announce(ctx, announcements)
		answer(announcing, policy.Verdict{})
	}
}
