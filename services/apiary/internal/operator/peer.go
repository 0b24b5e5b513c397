package operator

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// offers says by which gRPC service each of ours is told.
var offers = []struct{ service, name string }{
	{"ingest", ingestv1.DirectoryService_ServiceDesc.ServiceName},
	{"search", searchv1.DirectoryService_ServiceDesc.ServiceName},
	{"fanout", fanoutv1.FanoutService_ServiceDesc.ServiceName},
}

// wrongServiceError says that another service than the one that was meant has answered.
type wrongServiceError struct {
	// Answered is the service, empty if it is none that the operator's commands know.
	Answered string
}

// Error names who answered.
func (e *wrongServiceError) Error() string {
	if e.Answered == "" {
		return "another service answers there"
	}
	return e.Answered + " answers there"
}

// peer is a connection that finds out who is at its end if that does not offer what it is asked for: the address of
// one service is easily given for another's.
type peer struct{ *grpc.ClientConn }

// Invoke calls a method.
func (p peer) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	err := p.ClientConn.Invoke(ctx, method, args, reply, opts...)
	if s := status.Convert(err); s.Code() != codes.Unimplemented || !strings.HasPrefix(s.Message(), "unknown service") {
		return err
	}
	health := healthpb.NewHealthClient(p.ClientConn)
	for _, offer := range offers {
		if _, err := health.Check(ctx, &healthpb.HealthCheckRequest{Service: offer.name}); err == nil {
			return &wrongServiceError{offer.service}
		}
	}
	return &wrongServiceError{}
}

// misdirected is what a person is told who gave one service's address for another's.
func misdirected(what, service string, wrong *wrongServiceError) error {
	return fmt.Errorf("%s: %w, not %s: --%s wants an address of %s (make cluster prints them; the usual ports are 7401 of ingest, 7403 of search)", what, wrong, service, service, service)
}
