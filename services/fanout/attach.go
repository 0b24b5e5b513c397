package fanout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	"github.com/apiary-relay/apiary/pkg/placement"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	"github.com/apiary-relay/apiary/services/fanout/internal/deliver"
	"github.com/apiary-relay/apiary/services/fanout/internal/index"
	"github.com/apiary-relay/apiary/services/fanout/internal/partition"
)

// Limits of one request, by contract or generous: gateways enforce what clients are promised.
const (
	maxCommands = 1024
	maxFilters  = 32
	maxKeys     = 16
	maxChannel  = 64
	// maxValues bounds all lists of one subscription together.
	maxValues = 16_384
)

// Attach implements fanoutv1.FanoutServiceServer.
func (s *Service) Attach(stream grpc.BidiStreamingServer[fanoutv1.AttachRequest, fanoutv1.AttachResponse]) error {
	link := deliver.NewLink(s.cfg.link())
	if !s.links.add(link) {
		return fault.New(fault.Overloaded, "fan-out node is not serving")
	}
	ctx, cancel := context.WithCancel(stream.Context())
	r := &receiver{service: s, link: link, touched: make(map[uint32]struct{})}
	sent, received := make(chan error, 1), make(chan error, 1)
	var both sync.WaitGroup
	both.Go(func() { sent <- send(ctx, link, stream) })
	both.Go(func() { received <- r.receive(ctx, stream) })
	// Both may sit in calls that end only when this handler has returned, so somebody else waits for them.
	defer func() {
		cancel()
		go func() {
			defer s.links.remove(link)
			both.Wait()
			link.Close()
			r.detach()
		}()
	}()
	select {
	case err := <-sent:
		if errors.Is(err, io.EOF) {
			return nil // drained: everything that was queued has been sent
		}
		return fault.Wrap(fault.Cancelled, "", err)
	case err := <-received:
		if errors.Is(err, io.EOF) {
			return nil // the gateway has nothing more to ask, and so no handles
		}
		return err
	case <-s.links.killed:
		return fault.New(fault.Overloaded, "fan-out node has stopped")
	}
}

// send takes batches from the link and sends them. io.EOF means that the link is closed and empty.
func send(ctx context.Context, link *deliver.Link, stream grpc.ServerStream) error {
	for {
		items, err := link.Next(ctx)
		if err != nil {
			return err
		}
		if err := stream.SendMsg(&fanoutv1.AttachResponse{Items: items}); err != nil {
			return fmt.Errorf("send to gateway: %w", err)
		}
	}
}

// receiver executes a gateway's commands. Only its goroutine touches it, and detach after that has ended.
type receiver struct {
	service *Service
	link    *deliver.Link
	touched map[uint32]struct{} // partitions that know the link
}

// receive reads until the stream ends. It pauses while the link has no room: a gateway that does not take
// answers is not asked for more commands.
func (r *receiver) receive(ctx context.Context, stream grpc.BidiStreamingServer[fanoutv1.AttachRequest, fanoutv1.AttachResponse]) error {
	for {
		if err := r.link.Admit(ctx); err != nil {
			return err
		}
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		if err != nil {
			return fault.Wrap(fault.Cancelled, "", err) // the stream is broken, there is nobody to tell
		}
		if n := len(req.GetCommands()); n > maxCommands {
			return fault.New(fault.Invalid, fmt.Sprintf("%d commands in one request, at most %d", n, maxCommands))
		}
		if err := r.execute(ctx, req.GetCommands()); err != nil {
			return err
		}
	}
}

// execute sorts the commands by partition, keeping their order there, so that those who resume together
// are replayed together.
func (r *receiver) execute(ctx context.Context, commands []*fanoutv1.Command) error {
	batches := make(map[uint32][]partition.Command)
	for _, c := range commands {
		switch c := c.GetCommand().(type) {
		case *fanoutv1.Command_Subscribe:
			r.subscribe(c.Subscribe, batches)
		case *fanoutv1.Command_Unsubscribe:
			forget(batches, r.link.Forget(c.Unsubscribe.GetHandle()))
		default:
			return fault.New(fault.Unsupported, "unknown command")
		}
	}
	for n, batch := range batches {
		r.touched[n] = struct{}{}
		if err := r.service.partitions[n].Send(ctx, batch...); err != nil {
			return err
		}
	}
	return nil
}

func forget(batches map[uint32][]partition.Command, h *deliver.Handle) {
	if h != nil {
		batches[h.Partition()] = append(batches[h.Partition()], partition.Command{Forget: h})
	}
}

func (r *receiver) subscribe(m *fanoutv1.Subscribe, batches map[uint32][]partition.Command) {
	if !r.service.links.accepts() {
		forget(batches, r.link.Forget(m.GetHandle()))
		r.link.Refuse(m.GetHandle(), fault.Overloaded, "node is draining")
		return
	}
	c, err := parse(m)
	if err != nil {
		forget(batches, r.link.Forget(m.GetHandle()))
		r.link.Refuse(m.GetHandle(), fault.Invalid, err.Error())
		return
	}
	n := placement.Partition(c.Community, c.Channel, r.service.cfg.Partitions)
	h, replaced, err := r.link.Register(m.GetHandle(), n)
	forget(batches, replaced)
	if err != nil {
		r.link.Refuse(m.GetHandle(), fault.Overloaded, err.Error())
		return
	}
	c.Handle = h
	batches[n] = append(batches[n], partition.Command{Subscribe: c})
}

// parse checks a request. The error is for the gateway's log.
func parse(m *fanoutv1.Subscribe) (*partition.Subscribe, error) {
	keys := m.GetPrincipal().GetPubkeys()
	switch {
	case m.GetCommunity() <= 0:
		return nil, errors.New("no community")
	case len(m.GetChannel()) > maxChannel:
		return nil, fmt.Errorf("channel of %d bytes", len(m.GetChannel()))
	case len(m.GetFilters()) > maxFilters:
		return nil, fmt.Errorf("%d filters", len(m.GetFilters()))
	case len(keys) == 0 || len(keys) > maxKeys:
		return nil, fmt.Errorf("principal of %d keys", len(keys))
	}
	c := &partition.Subscribe{
		Community: m.GetCommunity(), Channel: m.GetChannel(), ResumeAfter: m.GetResumeAfter(),
		Keys: make([]nostr.PubKey, 0, len(keys)),
	}
	filters, values := make([]nostr.Filter, 0, len(m.GetFilters())), 0
	for _, f := range m.GetFilters() {
		parsed, err := nostrpb.FilterFromProto(f)
		if err != nil {
			return nil, err
		}
		values += len(parsed.IDs) + len(parsed.Authors) + len(parsed.Kinds)
		for _, t := range parsed.Tags {
			values += len(t.Values)
		}
		filters = append(filters, *parsed)
	}
	if values > maxValues {
		return nil, fmt.Errorf("%d values in filters", values)
	}
	c.Plan = index.NewPlan(filters)
	for _, k := range keys {
		if len(k) != len(nostr.PubKey{}) {
			return nil, fmt.Errorf("key of %d bytes", len(k))
		}
		c.Keys = append(c.Keys, nostr.PubKey(k))
	}
	return c, nil
}

// detach makes every partition forget the link, whatever has become of the stream's context.
func (r *receiver) detach() {
	for n := range r.touched {
		r.service.partitions[n].Detach(r.link)
	}
}
