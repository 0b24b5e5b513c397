package search

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
)

func TestConfig(t *testing.T) {
	cfg := DefaultConfig()
	require.NoError(t, cfg.Validate())
	require.Equal(t, 500, cfg.Limit)

	bad := Config{Limit: maxLimit + 1}
	err := bad.Validate()
	require.ErrorContains(t, err, "limit must be at most 10000, not 10001")
	for _, name := range []string{"answer-bytes", "count-limit", "max-requests", "acquire-timeout", "query-timeout", "access-wait"} {
		require.ErrorContains(t, err, name+" must be positive, not 0")
	}
	_, err = New(bad, Deps{DB: pgtest.New(t)})
	require.Error(t, err)
	_, err = New(cfg, Deps{})
	require.ErrorContains(t, err, "pool")
}
