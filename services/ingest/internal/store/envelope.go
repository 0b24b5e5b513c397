package store

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/placement"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// NewHeader returns what the header of an event says before the database is asked: everything but access
// versions and the transaction.
func NewHeader(c *policy.Candidate, partitions uint32) *commonv1.Header {
	return &commonv1.Header{
		Id:          c.Event.ID[:],
		Pubkey:      c.Event.PubKey[:],
		CreatedAt:   c.Event.CreatedAt,
		Kind:        uint32(c.Event.Kind),
		Community:   c.Community,
		Channel:     c.Channel,
		Partition:   placement.Partition(c.Community, c.Channel, partitions),
		Traceparent: c.Traceparent,
	}
}

// EncodePartitions encodes one message per partition, in ascending order.
func EncodePartitions(batches map[uint32]*busv1.EnvelopeBatch) (*busv1.OutboxPayload, error) {
	p := &busv1.OutboxPayload{Partitions: make([]*busv1.PartitionBatch, 0, len(batches))}
	for partition, batch := range batches {
		encoded, err := proto.Marshal(batch)
		if err != nil {
			return nil, fmt.Errorf("encode envelopes: %w", err)
		}
		p.Partitions = append(p.Partitions, &busv1.PartitionBatch{Partition: partition, Batch: encoded})
	}
	slices.SortFunc(p.Partitions, func(a, b *busv1.PartitionBatch) int {
		return cmp.Compare(a.GetPartition(), b.GetPartition())
	})
	return p, nil
}
