package subject_test

import (
	"math"
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
	})
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

func FuzzParse(f *testing.F) {
	f.Add("apiary.v1.ev.63")
	f.Add("apiary.v1.eph.0")
	f.Add("apiary.v1.control.9223372036854775807")
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := subject.ParseEvents(s); err == nil {
			require.Equal(t, s, subject.Events(p))
		}
		if p, err := subject.ParseEphemeral(s); err == nil {
			require.Equal(t, s, subject.Ephemeral(p))
		}
		if c, err := subject.ParseControl(s); err == nil {
			require.Equal(t, s, subject.Control(c))
		}
	})
}
