package edge

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page says of exactly those NIPs that they are advertised which are.
func TestThePageOfNIPs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/nips.md")
	require.NoError(t, err)
	var advertised []int
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| ● \|`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(row[1])
		require.NoError(t, err)
		advertised = append(advertised, n)
	}
	require.Equal(t, supportedNIPs, advertised)
	require.True(t, slices.IsSorted(advertised))
}

// What the relay would have to sign is not advertised where it has no key.
func TestNIPsThatNeedAKey(t *testing.T) {
	require.Equal(t, supportedNIPs, (&Info{Self: "key"}).nips())
	without := (&Info{}).nips()
	require.Len(t, without, len(supportedNIPs)-2)
	require.NotContains(t, without, 29)
	require.NotContains(t, without, 43)
}
