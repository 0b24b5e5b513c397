package subject_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/bus/subject"
)

func TestNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, "apiary.v1.ev.0", subject.Events(0))
	require.Equal(t, "apiary.v1.eph.63", subject.Ephemeral(63))
	require.Equal(t, "apiary.v1.control.12", subject.Control(12))
}

func TestParseIsTheInverse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.Uint32().Draw(t, "partition")
		got, err := subject.ParseEvents(subject.Events(p))
		require.NoError(t, err)
		require.Equal(t, p, got)
		got, err = subject.ParseEphemeral(subject.Ephemeral(p))
		require.NoError(t, err)
		require.Equal(t, p, got)
		community := rapid.Int64Range(1, math.MaxInt64).Draw(t, "community")
		gotCommunity, err := subject.ParseControl(subject.Control(community))
		require.NoError(t, err)
		require.Equal(t, community, gotCommunity)
		pubkey := [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "pubkey"))
		gateway := rapid.StringMatching("[0-9A-Za-z]{1,64}").Draw(t, "gateway")
		gotCommunity, gotPubkey, gotGateway, err := subject.ParsePresenceKey(subject.PresenceKey(community, pubkey, gateway))
		require.NoError(t, err)
		require.Equal(t, community, gotCommunity)
		require.Equal(t, pubkey, gotPubkey)
		require.Equal(t, gateway, gotGateway)
	})
}

func TestPresenceKeysHaveOneSpelling(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("0a", 32)
	require.Equal(t, "7."+key+".G1", subject.PresenceKey(7, [32]byte(bytes.Repeat([]byte{10}, 32)), "G1"))
	for _, s := range []string{
		"", "7", "7." + key, "7." + key + ".", "0." + key + ".G1", "-7." + key + ".G1", "07." + key + ".G1", "7." + strings.ToUpper(key) + ".G1",
		"7." + key[2:] + ".G1", "7." + key[1:] + "x.G1", "7." + key + ".G.1", "7." + key + ".*", "7." + key + "." + strings.Repeat("g", 65),
	} {
		_, _, _, err := subject.ParsePresenceKey(s)
		require.ErrorIs(t, err, subject.ErrSubject, s)
	}
}

func TestParseRefusesOtherSpellings(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "apiary.v1.ev.", "apiary.v1.ev.01", "apiary.v1.ev.+1", "apiary.v1.ev.-1", "apiary.v1.ev.1.2", "apiary.v1.ev.*",
		"apiary.v1.ev.4294967296", "apiary.v2.ev.1", "apiary.v1.eph.1", " apiary.v1.ev.1", "apiary.v1.control.0", "apiary.v1.control.-1",
	} {
		_, err := subject.ParseEvents(s)
		require.ErrorIs(t, err, subject.ErrSubject, s)
		_, err = subject.ParseControl(s)
		require.ErrorIs(t, err, subject.ErrSubject, s)
	}
	_, err := subject.ParseEphemeral("apiary.v1.ev.1")
	require.ErrorIs(t, err, subject.ErrSubject)
}

// FuzzParse: a subject has one reading, in one family, and it is the one that building makes; what is built for
// any number is read back, and is one literal subject of its family's wildcard.
func FuzzParse(f *testing.F) {
	f.Add("apiary.v1.ev.63", uint32(63), int64(1))
	f.Add("apiary.v1.eph.0", uint32(0), int64(math.MinInt64))
	f.Add("apiary.v1.control.9223372036854775807", uint32(math.MaxUint32), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, s string, partition uint32, community int64) {
		readings := 0
		p, err := subject.ParseEvents(s)
		readings += requireReading(t, err, s, func() string { return subject.Events(p) }, subject.AllEvents)
		p, err = subject.ParseEphemeral(s)
		readings += requireReading(t, err, s, func() string { return subject.Ephemeral(p) }, subject.AllEphemeral)
		c, err := subject.ParseControl(s)
		readings += requireReading(t, err, s, func() string { return subject.Control(c) }, subject.AllControl)
		require.LessOrEqual(t, readings, 1)

		p, err = subject.ParseEvents(subject.Events(partition))
		require.NoError(t, err)
		require.Equal(t, partition, p)
		p, err = subject.ParseEphemeral(subject.Ephemeral(partition))
		require.NoError(t, err)
		require.Equal(t, partition, p)
		c, err = subject.ParseControl(subject.Control(community))
		require.Equal(t, community > 0, err == nil, "communities are numbered from 1")
		if err == nil {
			require.Equal(t, community, c)
		}
	})
}

// requireReading returns 1 for a subject that was read, and requires that it is what building makes.
func requireReading(t *testing.T, err error, s string, build func() string, wildcard string) int {
	t.Helper()
	if err != nil {
		require.ErrorIs(t, err, subject.ErrSubject)
		return 0
	}
	require.Equal(t, s, build())
	last := strings.TrimPrefix(s, strings.TrimSuffix(wildcard, "*"))
	require.NotEmpty(t, last)
	require.NotContains(t, last, ".", "one token")
	require.NotContains(t, last, "*")
	require.NotContains(t, last, ">")
	return 1
}
