package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A bucket is a stream like others, with names by which NATS's own tools know it.
const (
	bucketStreamPrefix  = "KV_"
	bucketSubjectPrefix = "$KV."
	headerOperation     = "KV-Operation"
	operationDelete     = "DEL"
	operationPurge      = "PURGE"
)

// BucketOptions are the properties of a key-value bucket.
type BucketOptions struct {
	// Name is the bucket's name.
	Name string
	// Description says what it is for.
	Description string
	// TTL is how long an entry, or the mark of a deleted one, is kept after it was written.
	TTL time.Duration
	// MaxBytes bounds the bucket in memory; what does not fit is refused.
	MaxBytes int64
	// Replicas is the number of copies.
	Replicas int
}

// EnsureBucket makes a bucket that keeps the last value of each key in memory, or brings its properties up to date.
// It is idempotent and may be called by several processes at once. Errors are those of EnsureStreams.
func (b *Bus) EnsureBucket(ctx context.Context, opts BucketOptions) error {
	_, err := b.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: opts.Name, Description: opts.Description, TTL: opts.TTL, MaxBytes: opts.MaxBytes, Replicas: opts.Replicas,
		History: 1, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		return fmt.Errorf("ensure bucket %s: %w", opts.Name, translate(err))
	}
	return nil
}

// PutKey writes the value of a key and returns at once; the Future's Ack has the revision as its Sequence. Errors
// are those of PublishAsync; a bucket that is full refuses.
func (b *Bus) PutKey(ctx context.Context, bucket, key string, value []byte) (*Future, error) {
	return b.publish(ctx, &nats.Msg{Subject: bucketSubject(bucket, key), Data: value, Header: nats.Header{}})
}

// PutKeyAfter is PutKey if the key's last entry, or the mark that it was deleted, has a revision; 0: if there is neither. Otherwise
// the Future fails with ErrRevision, and nothing is written.
func (b *Bus) PutKeyAfter(ctx context.Context, bucket, key string, value []byte, revision uint64) (*Future, error) {
	return b.publish(ctx, &nats.Msg{Subject: bucketSubject(bucket, key), Data: value, Header: nats.Header{
		jetstream.ExpectedLastSubjSeqHeader: []string{strconv.FormatUint(revision, 10)},
	}})
}

// DeleteKey is PutKey for the mark that a key is deleted.
func (b *Bus) DeleteKey(ctx context.Context, bucket, key string) (*Future, error) {
	return b.publish(ctx, &nats.Msg{
		Subject: bucketSubject(bucket, key), Header: nats.Header{headerOperation: []string{operationDelete}},
	})
}

// BucketState is what the bucket holds, as of some moment not before since. Those who ask at the same time share
// the answer.
func (b *Bus) BucketState(ctx context.Context, bucket string, since time.Time) (State, error) {
	return b.stateSince(ctx, bucketStreamPrefix+bucket, since)
}

// Entry is what was written to a key last.
type Entry struct {
	// Key is the key, Value what was written. Value belongs to the receiver.
	Key   string
	Value []byte
	// Deleted is set when the key was deleted; the value is empty then.
	Deleted bool
	// Revision is the place of the entry among all that was written to the bucket.
	Revision uint64
}

// Follower is told what a bucket holds. Its functions run in the goroutine of Follow.
type Follower struct {
	// Begin is called before the last entry of every key comes, the first time and whenever something may have
	// been missed since. Epoch identifies the bucket's incarnation: revisions of different ones cannot be compared.
	// Entries that have expired meanwhile do not come, and nothing tells of an expiry.
	Begin func(epoch uint64)
	// Each is called for each entry, in the order of revisions, without those that were replaced before they were
	// sent.
	Each func(Entry)
}

// Follow keeps a Follower up to date with a bucket, over lost connections and buckets that are not there yet. It
// blocks until ctx ends and returns its cause.
func (b *Bus) Follow(ctx context.Context, bucket string, f Follower) error {
	wait := retryFirst
	for {
		if err := b.awaitConnection(ctx); err != nil {
			return err
		}
		began := time.Now()
		err := b.follow(ctx, bucket, f)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b.log.LogAttrs(ctx, slog.LevelDebug, "bucket is followed anew", slog.String("bucket", bucket), slog.Any("error", err))
		if time.Since(began) > retryMost {
			wait = retryFirst
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		wait = min(wait*2, retryMost)
	}
}

// follow follows until something is wrong with the consumer.
func (b *Bus) follow(ctx context.Context, bucket string, f Follower) error {
	ctx, release := b.untilChanged(ctx)
	defer release()
	stream := bucketStreamPrefix + bucket
	before, err := b.StreamState(ctx, stream)
	if err != nil {
		return err
	}
	consumer, err := b.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Name: "follow-" + nats.NewInbox()[len(nats.InboxPrefix):], FilterSubject: bucketSubject(bucket, ">"),
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, AckPolicy: jetstream.AckNonePolicy,
		MaxDeliver: 1, MemoryStorage: true, Replicas: 1, InactiveThreshold: inactiveThreshold,
	})
	if err != nil {
		return translate(err)
	}
	name := consumer.CachedInfo().Name
	defer b.forgetConsumer(ctx, stream, name)
	after, err := b.StreamState(ctx, stream)
	if err != nil {
		return err
	}
	if before.Epoch != after.Epoch {
		return errAgain
	}
	p, err := b.newPuller(stream, name, checkEvery)
	if err != nil {
		return err
	}
	defer p.close()
	f.Begin(after.Epoch)
	for received := uint64(0); ; {
		msg, beat, err := p.next(ctx)
		if err != nil {
			return err
		}
		if msg == nil {
			if beat.sent != received {
				return errAgain // one was lost on the way
			}
			continue
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read entry's revision: %w", err)
		}
		if received++; meta.Sequence.Consumer != received {
			return errAgain
		}
		op := msg.Header.Get(headerOperation)
		f.Each(Entry{
			Key: strings.TrimPrefix(msg.Subject, bucketSubject(bucket, "")), Value: msg.Data,
			Deleted: op == operationDelete || op == operationPurge, Revision: meta.Sequence.Stream,
		})
	}
}

// forgetConsumer deletes a consumer. If that fails the server does it by itself a little later.
func (b *Bus) forgetConsumer(ctx context.Context, stream, consumer string) {
	if !b.Connected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteLimit)
	defer cancel()
	err := b.js.DeleteConsumer(ctx, stream, consumer)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		b.log.LogAttrs(ctx, slog.LevelDebug, "consumer not deleted", slog.String("stream", stream), slog.Any("error", err))
	}
}

func bucketSubject(bucket, key string) string { return bucketSubjectPrefix + bucket + "." + key }
