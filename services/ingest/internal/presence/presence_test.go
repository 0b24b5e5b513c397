package presence

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// stateless knows of every community only that it is there, and of one that it is not.
type stateless struct{}

// noCommunity is a community that does not exist.
const noCommunity = 404

func (stateless) ReadState(_ context.Context, candidates []*policy.Candidate) (*policy.State, error) {
	state := &policy.State{Communities: map[int64]policy.Community{}}
	for _, c := range candidates {
		if c.Community != noCommunity {
			state.Communities[c.Community] = policy.Community{}
		}
	}
	return state, nil
}

// replica runs a service on the server until the test ends.
func replica(tb testing.TB, server *bustest.Server, key *nostr.SecretKey) *Service {
	tb.Helper()
	return replicaAt(tb, server, key, time.Now)
}

// replicaAt is replica with a clock.
func replicaAt(tb testing.TB, server *bustest.Server, key *nostr.SecretKey, now func() time.Time) *Service {
	tb.Helper()
	b := server.Connect(tb)
	return replicaOn(tb, b, b, key, now)
}

// replicaOn is replicaAt over a connection, as it shows itself to the replica.
func replicaOn(tb testing.TB, b *bus.Bus, shown Bus, key *nostr.SecretKey, now func() time.Time) *Service {
	tb.Helper()
	s := New(Config{TTL: time.Minute, Partitions: 4}, Deps{
		Bus: shown, Store: stateless{}, Key: key, Now: now, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, func() {}) }()
	tb.Cleanup(func() {
		cancel()
		require.NoError(tb, <-done)
	})
	bustest.EnsureStreams(tb, b)
	require.NoError(tb, b.EnsureBucket(tb.Context(), bus.BucketOptions{
		Name: subject.BucketPresence, TTL: time.Minute, MaxBytes: 32 << 20, Replicas: 1,
	}))
	return s
}

func announcement(name, gateway, status string) *policy.Candidate {
	c := &policy.Candidate{Event: &nostr.Event{PubKey: nostrtest.PubKey(name), Kind: nostr.KindPresence, Content: status}}
	c.Community, c.Gateway = 1, gateway
	return c
}

func report(tb testing.TB, s *Service, gateway string, gone bool, names ...string) {
	tb.Helper()
	req := &ingestv1.ReportSessionsRequest{Gateway: gateway}
	for _, name := range names {
		key := nostrtest.PubKey(name)
		req.Sessions = append(req.Sessions, &ingestv1.Session{Community: 1, Pubkey: key[:], Gone: gone})
	}
	resp, err := s.ReportSessions(tb.Context(), req)
	require.NoError(tb, err)
	require.Equal(tb, time.Minute, resp.GetTtl().AsDuration())
}

// ask returns what the service answers of some users.
func ask(tb testing.TB, s *Service, names ...string) map[string]string {
	tb.Helper()
	req := &ingestv1.GetPresenceRequest{Community: 1}
	byKey := make(map[nostr.PubKey]string)
	for _, name := range names {
		key := nostrtest.PubKey(name)
		req.Pubkeys, byKey[key] = append(req.Pubkeys, key[:]), name
	}
	resp, err := s.GetPresence(tb.Context(), req)
	require.NoError(tb, err)
	statuses := make(map[string]string)
	for _, status := range resp.GetStatuses() {
		ev, err := wire.DecodeEvent(status.GetEvent(), wire.DefaultLimits())
		require.NoError(tb, err)
		require.NoError(tb, ev.Verify())
		require.Equal(tb, nostrtest.PubKey("relay"), ev.PubKey)
		statuses[byKey[nostr.PubKey(status.GetPubkey())]] = ev.Content
	}
	return statuses
}

func TestReplicasAnswerWithEverythingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	server := bustest.New(t)
	one, other := replica(t, server, nostrtest.Key("relay")), replica(t, server, nostrtest.Key("relay"))
	for range 20 {
		report(t, one, "G1", false, "alice")
		require.Empty(t, ask(t, other, "alice", "bob"))
		other.Announce(t.Context(), []*policy.Candidate{
			announcement("alice", "G1", "online"), announcement("bob", "G2", "away"), announcement("carol", "", "nowhere"),
		})
		require.Equal(t, map[string]string{"alice": "online", "bob": "away"}, ask(t, one, "alice", "bob", "alice", "carol"))
		report(t, one, "G3", false, "alice")
		report(t, other, "G1", true, "alice", "bob")
		require.Equal(t, map[string]string{"alice": "online", "bob": "away"}, ask(t, one, "alice", "bob"))
		report(t, one, "G3", true, "alice")
		report(t, one, "G2", true, "bob")
		require.Empty(t, ask(t, other, "alice", "bob"))
	}
}

// between calls do once, before a report's next record is written.
type between struct {
	Bus
	do func()
}

func (b *between) PutKeyAfter(ctx context.Context, bucket, key string, value []byte, revision uint64) (*bus.Future, error) {
	if do := b.do; do != nil {
		b.do = nil
		do()
	}
	return b.Bus.PutKeyAfter(ctx, bucket, key, value, revision)
}

// A client announces something as soon as it has come, while the gateway reports that it has: the record of the one does not
// forget the other, also for those who hear of the last record only.
func TestAReportForgetsNoAnnouncement(t *testing.T) {
	t.Parallel()
	server := bustest.New(t)
	conn := server.Connect(t)
	b := &between{Bus: conn}
	one, other := replicaOn(t, conn, b, nostrtest.Key("relay"), time.Now), replica(t, server, nostrtest.Key("relay"))
	for _, status := range []string{"online", "away", "online"} {
		b.do = func() { other.Announce(t.Context(), []*policy.Candidate{announcement("alice", "G1", status)}) }
		report(t, one, "G1", false, "alice", "bob")
		require.Nil(t, b.do)
		require.Equal(t, map[string]string{"alice": status}, ask(t, replica(t, server, nostrtest.Key("relay")), "alice"))
		if status == "away" { // who comes back after that finds the mark of the deletion
			report(t, other, "G1", true, "alice")
			require.Empty(t, ask(t, one, "alice"))
		}
	}
}

// TestAReportOfWhatHasEnded has records that end in the bucket before a replica counts them as old, as one does that has read them
// late: those who are still there are recorded again with what they announced, however many they are.
func TestAReportOfWhatHasEnded(t *testing.T) {
	t.Parallel()
	server := bustest.New(t)
	b := server.Connect(t)
	one := replica(t, server, nostrtest.Key("relay"))
	names := []string{"alice", "bob"}
	for i := range 3 * maxInFlight {
		names = append(names, fmt.Sprint("user ", i))
	}
	report(t, one, "G1", false, names...)
	one.Announce(t.Context(), []*policy.Candidate{announcement("alice", "G1", "away")})
	report(t, one, "G1", true, "bob") // whose mark ends as well
	require.Equal(t, map[string]string{"alice": "away"}, ask(t, one, names...))
	conn, err := nats.Connect("", nats.InProcessServer(server))
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	bucket, err := js.Stream(t.Context(), "KV_"+subject.BucketPresence)
	require.NoError(t, err)
	require.NoError(t, bucket.Purge(t.Context()))
	one.Announce(t.Context(), []*policy.Candidate{announcement("carol", "G1", "online")}) // the bucket is not empty
	report(t, one, "G1", false, append(names, "carol")...)
	require.Equal(t, map[string]string{"alice": "away", "carol": "online"},
		ask(t, replica(t, server, nostrtest.Key("relay")), append(names, "carol")...))
	state, err := b.BucketState(t.Context(), subject.BucketPresence, time.Now())
	require.NoError(t, err)
	require.EqualValues(t, len(names)+1, state.Messages)
}

// A replica that starts knows what others have known: the records say it.
func TestANewReplicaKnowsWhatWasAnnouncedElsewhere(t *testing.T) {
	t.Parallel()
	server := bustest.New(t)
	one := replica(t, server, nostrtest.Key("relay"))
	one.Announce(t.Context(), []*policy.Candidate{announcement("alice", "G1", "online")})
	report(t, one, "G2", false, "alice")
	report(t, one, "G1", true, "alice")
	require.Equal(t, map[string]string{"alice": "online"}, ask(t, replica(t, server, nostrtest.Key("relay")), "alice"))
}

// Every replica tells of a departure, and there is one.
func TestDeparturesAreTold(t *testing.T) {
	t.Parallel()
	server := bustest.New(t)
	one := replica(t, server, nostrtest.Key("relay"))
	other := replica(t, server, nostrtest.Key("relay"))
	one.Announce(t.Context(), []*policy.Candidate{announcement("alice", "G1", "online"), announcement("bob", "G1", "online")})
	report(t, one, "G1", true, "alice")
	report(t, other, "G1", true, "bob")
	b := server.Connect(t)
	var state bus.State
	require.Eventually(t, func() bool { // nothing tells when a replica has tried
		var err error
		state, err = b.StreamState(t.Context(), subject.StreamEphemeral)
		waiting := 0
		for _, s := range []*Service{one, other} {
			s.mu.Lock()
			waiting += len(s.left)
			s.mu.Unlock()
		}
		return err == nil && waiting == 0 && state.LastSeq >= 2
	}, time.Minute, 20*time.Millisecond)
	require.EqualValues(t, 2, state.LastSeq)
}

// What is kept of a community that was deleted goes, and nobody is told.
func TestACommunityIsForgotten(t *testing.T) {
	t.Parallel()
	server := bustest.New(t)
	one, other := replica(t, server, nostrtest.Key("relay")), replica(t, server, nostrtest.Key("relay"))
	there, gone := announcement("alice", "G1", "online"), announcement("alice", "G1", "online")
	gone.Community = noCommunity
	also := announcement("bob", "G2", "online")
	also.Community = noCommunity
	one.Announce(t.Context(), []*policy.Candidate{there, gone, also})
	require.NoError(t, other.Forget(t.Context(), noCommunity))
	for _, s := range []*Service{one, other} {
		require.NoError(t, s.sync(t.Context()))
		s.mu.Lock()
		users := len(s.book.users)
		s.mu.Unlock()
		require.Equal(t, 1, users)
	}
	require.NoError(t, one.Forget(t.Context(), noCommunity), "again there is nothing to do")
	state, err := server.Connect(t).StreamState(t.Context(), subject.StreamEphemeral)
	require.NoError(t, err)
	require.Zero(t, state.LastSeq)
}

// Whoever leaves, comes back and leaves in one second has left twice: the same event again would be dropped as a repeat, and
// who has seen the return would not see the end.
func TestDeparturesOfOneSecondAreTwoEvents(t *testing.T) {
	t.Parallel()
	const times = 3
	server := bustest.New(t)
	now := time.Now()
	one := replicaAt(t, server, nostrtest.Key("relay"), func() time.Time { return now })
	b := server.Connect(t)
	for i := range uint64(times) {
		one.Announce(t.Context(), []*policy.Candidate{announcement("alice", "G1", "online")})
		report(t, one, "G1", true, "alice")
		require.Eventually(t, func() bool { // it is told by itself
			state, err := b.StreamState(t.Context(), subject.StreamEphemeral)
			return err == nil && state.LastSeq == i+1
		}, time.Minute, time.Millisecond)
	}
	ctx, stop := context.WithCancel(t.Context())
	var created []int64
	err := b.ConsumeOrdered(ctx, subject.StreamEphemeral, subject.AllEphemeral, 1, func(_ context.Context, m bus.Msg) error {
		var batch busv1.EnvelopeBatch
		require.NoError(t, proto.Unmarshal(m.Data, &batch))
		ev, err := wire.DecodeEvent(batch.GetEnvelopes()[0].GetRaw(), wire.DefaultLimits())
		require.NoError(t, err)
		created = append(created, ev.CreatedAt)
		if len(created) == times {
			stop()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []int64{now.Unix(), now.Unix() + 1, now.Unix() + 2}, created)
}

func TestPresenceRefusals(t *testing.T) {
	t.Parallel()
	server := bustest.New(t)
	s := replica(t, server, nostrtest.Key("relay"))
	key := nostrtest.PubKey("alice")
	for name, req := range map[string]*ingestv1.ReportSessionsRequest{
		"no gateway":  {Sessions: []*ingestv1.Session{{Community: 1, Pubkey: key[:]}}},
		"bad gateway": {Gateway: "a.*", Sessions: []*ingestv1.Session{{Community: 1, Pubkey: key[:]}}},
		"community":   {Gateway: "G", Sessions: []*ingestv1.Session{{Pubkey: key[:]}}},
		"key":         {Gateway: "G", Sessions: []*ingestv1.Session{{Community: 1, Pubkey: key[1:]}}},
		"too many":    {Gateway: "G", Sessions: make([]*ingestv1.Session, maxSessions+1)},
	} {
		_, err := s.ReportSessions(t.Context(), req)
		require.Equal(t, fault.Invalid, fault.ReasonOf(err), name)
	}
	for name, req := range map[string]*ingestv1.GetPresenceRequest{
		"community": {Pubkeys: [][]byte{key[:]}},
		"key":       {Community: 1, Pubkeys: [][]byte{nil}},
		"too many":  {Community: 1, Pubkeys: make([][]byte, maxKeys+1)},
	} {
		_, err := s.GetPresence(t.Context(), req)
		require.Equal(t, fault.Invalid, fault.ReasonOf(err), name)
	}
	_, err := replica(t, server, nil).GetPresence(t.Context(), &ingestv1.GetPresenceRequest{Community: 1})
	require.Equal(t, fault.Unsupported, fault.ReasonOf(err))
	server.Stop(t)
	_, err = s.GetPresence(t.Context(), &ingestv1.GetPresenceRequest{Community: 1, Pubkeys: [][]byte{key[:]}})
	require.Equal(t, fault.Overloaded, fault.ReasonOf(err))
	_, err = s.ReportSessions(t.Context(), &ingestv1.ReportSessionsRequest{Gateway: "G", Sessions: []*ingestv1.Session{{Community: 1, Pubkey: key[:]}}})
	require.Equal(t, fault.Overloaded, fault.ReasonOf(err))
}

const benchmarkUsers = 256

func users() []*ingestv1.Session {
	all := make([]*ingestv1.Session, benchmarkUsers)
	for i := range all {
		key := nostr.PubKey{byte(i), byte(i >> 8), 1}
		all[i] = &ingestv1.Session{Community: 1, Pubkey: key[:]}
	}
	return all
}

// BenchmarkReport reports as many keys as a page of a client's contacts, one replica following.
func BenchmarkReport(b *testing.B) {
	s := replica(b, bustest.New(b), nostrtest.Key("relay"))
	req := &ingestv1.ReportSessionsRequest{Gateway: "G", Sessions: users()}
	for b.Loop() {
		_, err := s.ReportSessions(b.Context(), req)
		require.NoError(b, err)
	}
}

// BenchmarkGetPresence asks about as many, all of them online, whom nobody has asked about lately.
func BenchmarkGetPresence(b *testing.B) {
	s := replica(b, bustest.New(b), nostrtest.Key("relay"))
	req := &ingestv1.GetPresenceRequest{Community: 1}
	for _, u := range users() {
		c := announcement("", "G", "online")
		c.Event.PubKey = nostr.PubKey(u.GetPubkey())
		s.Announce(b.Context(), []*policy.Candidate{c})
		req.Pubkeys = append(req.Pubkeys, u.GetPubkey())
	}
	for b.Loop() {
		s.mu.Lock()
		for _, u := range s.book.users {
			u.word = nil // as if nobody had asked in the last seconds
		}
		s.mu.Unlock()
		resp, err := s.GetPresence(b.Context(), req)
		require.NoError(b, err)
		require.Len(b, resp.GetStatuses(), benchmarkUsers)
	}
}
