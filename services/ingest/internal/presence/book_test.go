package presence

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	alice = userKey{community: 1, pubkey: [32]byte{1}}
	start = time.Unix(1_700_000_000, 0)
)

func announced(status string, at int64) *busv1.PresenceRecord {
	return &busv1.PresenceRecord{Status: status, AnnouncedAt: at}
}

func statusIn(b *book, k userKey) string {
	status, _ := b.status(k)
	return status
}

func TestTheLatestAnnouncementCounts(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.record(alice, "a", announced("", 0), 1, start)
	require.Empty(t, statusIn(b, alice))
	b.record(alice, "a", announced("online", 10), 2, start)
	b.record(alice, "b", announced("away", 20), 3, start)
	b.record(alice, "a", announced("online", 10), 4, start) // reported again by who knows no better
	require.Equal(t, "away", statusIn(b, alice))
	require.Empty(t, statusIn(b, userKey{community: 2, pubkey: alice.pubkey}))

	_, left := b.remove(alice, "b", 5, start)
	require.False(t, left)
	require.Equal(t, "away", statusIn(b, alice), "what was said holds while another session does")
	d, left := b.remove(alice, "a", 6, start)
	require.True(t, left)
	require.Equal(t, departure{userKey: alice, revision: 6}, d)
	_, left = b.remove(alice, "a", 7, start)
	require.False(t, left, "once")
	b.record(alice, "c", announced("", 0), 8, start)
	require.Empty(t, statusIn(b, alice), "what was said has ended with the last session")
}

func TestTheBookKnowsTheLastRevisionOfEachKey(t *testing.T) {
	t.Parallel()
	b := newBook()
	require.Zero(t, b.revision(alice, "a"))
	b.record(alice, "a", announced("", 0), 1, start)
	b.record(alice, "a", announced("online", 10), 2, start)
	b.record(alice, "b", announced("online", 10), 3, start)
	require.Equal(t, []uint64{2, 3}, []uint64{b.revision(alice, "a"), b.revision(alice, "b")})
	b.remove(alice, "a", 4, start)
	b.remove(alice, "c", 5, start) // of which nobody had heard
	require.Equal(t, []uint64{4, 3, 5}, []uint64{b.revision(alice, "a"), b.revision(alice, "b"), b.revision(alice, "c")})
	b.record(alice, "a", announced("", 0), 6, start.Add(time.Minute))
	require.EqualValues(t, 6, b.revision(alice, "a"))

	require.True(t, b.hasExpired(start.Add(1)))
	b.expire(start.Add(1))
	require.Equal(t, []uint64{6, 0, 0}, []uint64{b.revision(alice, "a"), b.revision(alice, "b"), b.revision(alice, "c")})
	require.Empty(t, b.marks)
	require.Zero(t, b.marked.Len())
	b.remove(alice, "c", 7, start)
	b.epoch = 2 // a bucket that was made anew has neither
	require.Equal(t, []uint64{0, 0}, []uint64{b.revision(alice, "a"), b.revision(alice, "c")})
}

func TestTheRelaysWordHoldsForTheStatusOnly(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.record(alice, "a", announced("online", 10), 1, start)
	b.say(alice, 10, []byte("online"), 100)
	require.Equal(t, "online", string(b.said(alice, 95)))
	require.Nil(t, b.said(alice, 101), "too old")
	b.record(alice, "b", announced("online", 10), 2, start)
	require.NotNil(t, b.said(alice, 95))
	b.record(alice, "b", announced("away", 20), 3, start)
	require.Nil(t, b.said(alice, 95))
	b.say(alice, 10, []byte("online"), 100) // signed while the status changed
	require.Nil(t, b.said(alice, 95))
	b.say(userKey{}, 10, []byte("nobody"), 100)
	require.Nil(t, b.said(userKey{}, 95))
}

func TestOnlyWhoWasOnlineLeaves(t *testing.T) {
	t.Parallel()
	for status, leaves := range map[string]bool{"": false, "offline": false, "online": true, "somewhere": true} {
		b := newBook()
		b.record(alice, "a", announced(status, 1), 1, start)
		_, left := b.remove(alice, "a", 2, start)
		require.Equal(t, leaves, left, status)
		require.Empty(t, b.users)
	}
}

func TestWhatIsNotRepeatedExpires(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.epoch = 7
	b.record(alice, "a", announced("online", 1), 1, start)
	b.record(alice, "b", announced("online", 1), 2, start.Add(time.Second))
	b.record(alice, "a", announced("online", 1), 3, start.Add(3*time.Second))
	// The bucket is followed anew: what comes again is as old as it was.
	b.record(alice, "b", announced("online", 1), 2, start.Add(4*time.Second))
	require.False(t, b.hasExpired(start.Add(time.Second)))
	require.True(t, b.hasExpired(start.Add(2*time.Second)))
	require.Empty(t, b.expire(start.Add(2*time.Second)))
	require.Equal(t, []departure{{userKey: alice, epoch: 7, revision: 3}}, b.expire(start.Add(time.Minute)))
	require.Empty(t, b.users)
	require.Zero(t, b.recorded.Len())
}

// TestReplicasAgree: whoever gets the same entries has the same statuses and departures, with the same names.
func TestReplicasAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		one, other := newBook(), newBook()
		var left, otherLeft []departure
		sessions := make(map[userKey]map[string]bool)
		for i := range uint64(rapid.IntRange(0, 50).Draw(t, "entries")) {
			k := userKey{community: rapid.Int64Range(1, 2).Draw(t, "community"), pubkey: [32]byte{rapid.Byte().Draw(t, "key") % 3}}
			gateway := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "gateway")
			if rapid.Bool().Draw(t, "deleted") {
				for b, list := range map[*book]*[]departure{one: &left, other: &otherLeft} {
					if d, ok := b.remove(k, gateway, i, start); ok {
						*list = append(*list, d)
					}
				}
				delete(sessions[k], gateway)
				continue
			}
			r := announced(rapid.SampledFrom([]string{"online", "away", "offline"}).Draw(t, "status"), rapid.Int64Range(0, 5).Draw(t, "at"))
			one.record(k, gateway, r, i, start)
			other.record(k, gateway, r, i, start)
			other.record(k, gateway, r, i, start) // twice, as after a lost connection
			if sessions[k] == nil {
				sessions[k] = make(map[string]bool)
			}
			sessions[k][gateway] = true
		}
		require.Equal(t, left, otherLeft)
		total := 0
		for k, of := range sessions {
			require.Equal(t, statusIn(one, k), statusIn(other, k))
			for gateway := range of {
				require.NotNil(t, one.session(k, gateway))
			}
			total += len(of)
		}
		require.Equal(t, total, one.recorded.Len())
		require.Len(t, other.expire(start.Add(1)), len(one.expire(start.Add(1))))
		require.Empty(t, one.users)
	})
}

func TestStatusOf(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"": "", " online\n": "online", "offline": "offline", `{"status":"away","text":"lunch"}`: "away", `{"status":1}`: `{"status":1}`,
		`{}`: "", `{"status":" "}`: "", "{": "{",
		strings.Repeat("x", 200):                                 strings.Repeat("x", 128),
		"x" + strings.Repeat("é", 100):                           "x" + strings.Repeat("é", 63),
		fmt.Sprintf(`{"status":"%s"}`, strings.Repeat("y", 200)): strings.Repeat("y", 128),
	} {
		require.Equal(t, want, statusOf(content), content)
	}
}
