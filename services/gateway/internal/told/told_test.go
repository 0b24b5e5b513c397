package told

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSince(t *testing.T) {
	t.Parallel()
	l := NewLog()
	mark := l.Now()
	require.False(t, l.Since(1, mark))
	l.Note(1, 7)
	require.True(t, l.Since(1, mark))
	require.False(t, l.Since(2, mark), "communities are apart")
	require.False(t, l.Since(1, l.Now()))
	l.Note(1, 5)
	l.Note(1, 0)
	require.EqualValues(t, 7, l.Version(1), "messages may come in any order")
	mark = l.Now()
	l.NoteAll()
	require.True(t, l.Since(1, mark))
	require.True(t, l.Since(2, mark))
	require.False(t, l.Since(2, l.Now()))
}

// What is forgotten, so that the log stays small, may have been anything.
func TestTheLogIsBounded(t *testing.T) {
	t.Parallel()
	l := NewLog()
	l.Note(-1, 3)
	mark := l.Now()
	for c := range int64(3 * maxCommunities) {
		l.Note(c, 1)
		require.LessOrEqual(t, len(l.recent)+len(l.older), 2*maxCommunities)
	}
	require.True(t, l.Since(-1, mark))
	require.Zero(t, l.Version(-1))
	last := l.Now()
	l.Note(2*maxCommunities, 9)
	require.False(t, l.Since(-1, last))
	require.EqualValues(t, 9, l.Version(2*maxCommunities))
}

func TestDoubts(t *testing.T) {
	t.Parallel()
	d := NewDoubts[int]()
	d.Add(1)
	d.Add(1)
	d.Add(2)
	<-d.Wake()
	require.ElementsMatch(t, []int{1, 2}, d.Take())
	require.Empty(t, d.Take())
	select {
	case <-d.Wake():
		require.Fail(t, "nothing is left")
	default:
	}
}
