package bridge

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A field that a filter may have is another way to events. The case that tries every gate at every door knows all of them.
func TestEveryExtensionIsADoor(t *testing.T) {
	doors, err := os.ReadFile("../../../internal/cluster/gates_test.go")
	require.NoError(t, err)
	for _, name := range extensions {
		if _, ok := aliases[name]; !ok {
			require.Contains(t, string(doors), `"`+name+`"`, "say in modesOf or storedDoors what it shows")
		}
	}
}
