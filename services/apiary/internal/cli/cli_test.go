package cli

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// A command that the grammar has and nobody runs would end the program.
func TestEveryCommandIsRun(t *testing.T) {
	commands := New("apiary", nil)
	for _, name := range leaves(t) {
		require.NotNil(t, commands.byName(name), name)
	}
}

// leaves are the commands of the grammar, like "client listen".
func leaves(t *testing.T) (names []string) {
	t.Helper()
	parser, err := kong.New(New("apiary", nil))
	require.NoError(t, err)
	for _, leaf := range parser.Model.Leaves(false) {
		var words []string
		for node := leaf; node.Type != kong.ApplicationNode; node = node.Parent {
			words = append([]string{node.Name}, words...)
		}
		names = append(names, strings.Join(words, " "))
	}
	return names
}
