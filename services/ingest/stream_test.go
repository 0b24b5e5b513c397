package ingest_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

// TestNobodyWaitsForTheLargeEventsOfOthers has a large event that takes until the test lets it go. Who has sent it waits with what came
// after it; who shares nothing but the stream does not.
func TestNobodyWaitsForTheLargeEventsOfOthers(t *testing.T) {
	h := newHarness(t)
	hold, held := make(chan struct{}), make(chan struct{})
	var armed atomic.Bool
	r := h.start("one", func(o *options) {
		o.cfg.VerifyWorkers = 2
		o.now = func() time.Time { // the last thing that verifying an event asks for
			if armed.CompareAndSwap(true, false) {
				close(held)
				<-hold
			}
			return time.Now()
		}
	})
	community := h.community(r, "team.example", ingestv1.Access_ACCESS_OPEN)
	c := h.open(r)
	c.accept(by(community, event(t, "alice"), "alice"), by(community, event(t, "bob"), "bob"))

	armed.Store(true)
	large := c.send(by(community, event(t, "alice", nostrtest.Content(strings.Repeat("x", 32<<10))), "alice"))
	<-held
	next := event(t, "alice", nostrtest.Content("next"))
	after := c.send(by(community, next, "alice"))
	c.accept(by(community, event(t, "bob", nostrtest.Content("meanwhile")), "bob"), by(community, event(t, "bob", nostrtest.Content("and more")), "bob"))
	require.Zero(t, h.count(`SELECT count(*) FROM ingest.events WHERE id = $1`, next.ID[:]), "what came after it")
	close(hold)
	for _, v := range c.verdicts(append(large, after...)...) {
		requireVerdict(t, commonv1.Reason_REASON_UNSPECIFIED, "", v)
	}
}
