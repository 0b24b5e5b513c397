package ingest

import (
	"context"
	"log/slog"

	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/bus/subject"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

// announce tells gateways of an access that was taken. It does not wait, and what is lost is not sent again: gateways ask
// by themselves every now and then, and when the bus comes back. While the bus is away it is an error, which is logged.
func (s *Service) announce(ctx context.Context, r store.Revocation) error {
	revocation := &busv1.Revocation{AclVersion: r.ACLVersion}
	switch {
	case r.Whole:
		revocation.Target = &busv1.Revocation_Community{Community: true}
	case r.PubKey != nil:
		revocation.Target = &busv1.Revocation_Pubkey{Pubkey: r.PubKey[:]}
	default:
		revocation.Target = &busv1.Revocation_Network{Network: r.Network.String()}
	}
	payload, err := proto.Marshal(revocation)
	if err == nil {
		err = s.bus.Notify(ctx, subject.Control(r.Community), payload)
	}
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "revocation not announced", slog.Any("error", err))
	}
	return err
}
