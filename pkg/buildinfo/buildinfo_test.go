package buildinfo

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFrom(t *testing.T) {
	build := &debug.BuildInfo{
		Main: debug.Module{Version: "(devel)"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"},
			{Key: "vcs.modified", Value: "true"},
			{Key: "vcs.time", Value: "2026-11-29T12:00:00Z"},
		},
	}
	got := from("", build)
	require.Equal(t, Info{
		Version: "dev", Commit: "0123456789abcdef", Dirty: true, Go: runtime.Version(),
		Time: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC),
	}, got)
	require.Equal(t, "dev (0123456789ab, modified) "+runtime.Version(), got.String())
	require.Equal(t, "v1.2.3", from("v1.2.3", build).Version)
	require.Equal(t, "v0.1.0", from("", &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}).Version)
	require.Equal(t, "dev "+runtime.Version(), from("", &debug.BuildInfo{}).String())
}

func TestRead(t *testing.T) {
	require.NotEmpty(t, Read().Version)
	require.Equal(t, runtime.Version(), Read().Go)
}
