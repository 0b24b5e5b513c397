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
// by themselves every now and then, and when the bus comes back.
func (s *Service) announce(ctx context.Context, r store.Revocation) {
	revocation := &busv1.Revocation{AclVersion: r.ACLVersion}
	if r.PubKey != nil {
		revocation.Target = &busv1.Revocation_Pubkey{Pubkey: r.PubKey[:]}
	} else {
		revocation.Target = &busv1.Revocation_Network{Network: r.Network.String()}
	}
	payload, err := proto.Marshal(revocation)
	if err == nil {
		err = s.bus.Notify(ctx, subject.Control(r.Community), payload)
	}
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "revocation not announced", slog.Any("error", err))
	}
}
