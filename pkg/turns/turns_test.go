package turns

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// value is the n-th of somebody.
type value struct {
	of string
	n  int
}

func filled(values ...value) *Queue[string, value] {
	q := &Queue[string, value]{}
	for _, v := range values {
		q.Add(v.of, v)
	}
	return q
}

func TestKeysTakeTurns(t *testing.T) {
	q := filled(value{"a", 0}, value{"a", 1}, value{"a", 2}, value{"a", 3}, value{"b", 0}, value{"c", 0}, value{"b", 1})
	var got []value
	for !q.Empty() {
		next := q.Next()
		require.Equal(t, next, q.Take())
		got = append(got, next)
	}
	require.Equal(t, []value{{"a", 0}, {"b", 0}, {"c", 0}, {"a", 1}, {"b", 1}, {"a", 2}, {"a", 3}}, got)
	require.Empty(t, q.lines, "who is gone is forgotten")
	require.Nil(t, q.order)
	q.Add("b", value{"b", 7})
	require.Equal(t, value{"b", 7}, q.Take())
}

func TestWhatIsUnwantedIsTakenOut(t *testing.T) {
	q := filled(value{"a", 0}, value{"b", 0}, value{"a", 1}, value{"b", 2}, value{"a", 2}, value{"a", 3})
	removed := q.Remove(func(v value) bool { return v.n%2 == 0 })
	require.Equal(t, []value{{"a", 0}, {"a", 2}, {"b", 0}, {"b", 2}}, removed)
	require.Equal(t, value{"a", 1}, q.Take())
	require.Equal(t, value{"a", 3}, q.Take())
	require.True(t, q.Empty())
	require.Empty(t, q.lines)
	require.Empty(t, q.Remove(func(value) bool { return true }))
}
