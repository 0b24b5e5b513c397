package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// pullMessages and pullBytes bound what one request asks for, and two requests may be open; a single
	// message of any size may always come.
	pullMessages = 128
	pullBytes    = 4 << 20
	pullHeadroom = 64 << 10
	// pullBeats is how many heartbeats a request lives; pullMissed how many may be missing.
	pullBeats  = 5
	pullMissed = 3
	// minSilence keeps a busy machine from being taken for a dead one.
	minSilence = 2 * time.Second
	// pullBuffer holds all that can come while a handler is busy: messages and the ends and heartbeats of
	// two requests.
	pullBuffer = 2*pullMessages + 4*pullBeats
)

// Headers of what is not a message.
const (
	headerStatus       = "Status"
	headerDescription  = "Description"
	headerLastConsumer = "Nats-Last-Consumer"
	headerLastStream   = "Nats-Last-Stream"
	headerPending      = "Nats-Pending-Messages"
)

// errSilent says that not even heartbeats come: the consumer, or the server that had it, is gone.
var errSilent = errors.New("consumer is silent")

// heartbeat says, in order with the messages, how far the server has looked.
type heartbeat struct {
	// sent is how many messages the consumer has sent.
	sent uint64
	// scanned is the sequence up to which the stream was looked through for them.
	scanned uint64
}

// puller asks a pull consumer for messages and reads what it answers. The driver has such a thing, but it
// keeps the heartbeats to itself, and they are the only sound word on how far a quiet consumer has come:
// the stream's state may be that of another server, which is ahead of the consumer's, and the number of
// pending messages is raised some time after a message was stored. Only the consuming goroutine touches it.
type puller struct {
	conn    *nats.Conn
	sub     *nats.Subscription
	in      chan *nats.Msg
	subject string
	request []byte
	// silence is how long nothing at all may come; silent is its timer.
	silence time.Duration
	silent  *time.Timer
	// open is how many messages may still come for the requests made.
	open int
}

func (b *Bus) newPuller(stream, consumer string, beat time.Duration) (*puller, error) {
	request, err := json.Marshal(struct {
		Batch     int           `json:"batch"`
		MaxBytes  int           `json:"max_bytes"`
		Expires   time.Duration `json:"expires"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{pullMessages, max(pullBytes, int(b.MaxPayload())+pullHeadroom), pullBeats * beat, beat})
	if err != nil {
		return nil, fmt.Errorf("make pull request: %w", err)
	}
	p := &puller{
		conn: b.conn, in: make(chan *nats.Msg, pullBuffer), request: request, silence: max(pullMissed*beat, minSilence),
		subject: "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer,
	}
	if p.sub, err = b.conn.ChanSubscribe(b.conn.NewInbox(), p.in); err != nil {
		return nil, fmt.Errorf("subscribe to consumer: %w", translate(err))
	}
	p.silent = time.NewTimer(p.silence)
	return p, nil
}

func (p *puller) close() {
	p.silent.Stop()
	_ = p.sub.Unsubscribe() // fails when the connection is gone, and the subscription with it
}

// next waits for a message or a heartbeat; exactly one of them is returned.
func (p *puller) next(ctx context.Context) (*nats.Msg, heartbeat, error) {
	p.silent.Reset(p.silence)
	for {
		if p.open <= pullMessages/2 {
			if err := p.conn.PublishRequest(p.subject, p.sub.Subject, p.request); err != nil {
				return nil, heartbeat{}, fmt.Errorf("ask for messages: %w", translate(err))
			}
			p.open += pullMessages
		}
		select {
		case m := <-p.in:
			status := m.Header.Get(headerStatus)
			if status == "" || len(m.Data) > 0 {
				p.open--
				return m, heartbeat{}, nil
			}
			if status == "100" {
				beat, err := parseHeartbeat(m.Header)
				return nil, beat, err
			}
			if err := p.ended(status, m.Header); err != nil {
				return nil, heartbeat{}, err
			}
		case <-p.silent.C:
			return nil, heartbeat{}, errSilent
		case <-ctx.Done():
			return nil, heartbeat{}, context.Cause(ctx)
		}
	}
}

// ended notes that a request is over; an error means that the consumer is.
func (p *puller) ended(status string, header nats.Header) error {
	description := header.Get(headerDescription)
	left, err := strconv.Atoi(header.Get(headerPending))
	over := status == "408" || status == "409" && (description == "Batch Completed" || description == "Message Size Exceeds MaxBytes")
	if !over || err != nil {
		return fmt.Errorf("consumer answers %s %s: %w", status, description, errAgain)
	}
	p.open = max(0, p.open-left)
	return nil
}

func parseHeartbeat(header nats.Header) (heartbeat, error) {
	sent, err := strconv.ParseUint(header.Get(headerLastConsumer), 10, 64)
	if err != nil {
		return heartbeat{}, fmt.Errorf("read heartbeat: %w", err)
	}
	scanned, err := strconv.ParseUint(header.Get(headerLastStream), 10, 64)
	if err != nil {
		return heartbeat{}, fmt.Errorf("read heartbeat: %w", err)
	}
	return heartbeat{sent: sent, scanned: scanned}, nil
}
