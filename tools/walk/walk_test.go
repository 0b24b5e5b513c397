package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// page writes a page whose fences are ~~~, which a Go string can hold.
func page(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "~~~", fence)), 0o600))
	return path
}

// walked walks through a page and returns what is said of it, with line numbers but without the path.
func walked(t *testing.T, text string) (string, error) {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), []string{page(t, text)}, os.Environ(), &out)
	return out.String(), err
}

func TestAPageThatIsRight(t *testing.T) {
	t.Setenv("APIARY_KEY", "the user's own")
	out, err := walked(t, `
# A page

~~~sh
exit 1
~~~

~~~console
$ secret=$RANDOM; echo "$secret $secret"
<secret> <secret>
$ echo "again $secret" >&2
again <secret>
$ echo "${secret:0:2} once more"
<secret:2> once more
$ echo one
> echo "two > three"
one
two > three
$ cat
$ printf 'no end of line'
no end of line
$ date +%T
<time>
$ seq 9
1
...
9
$ echo; echo 'apiary: no'; false

apiary: no
$ echo "${APIARY_KEY-none} $PWD" | sed "s:$HOME:home:"
none home
~~~

~~~console other
$ bash -c 'trap "echo end; exit 0" INT; echo ready; until [ -e said ]; do sleep 0.01; done; cat said; while :; do sleep 0.02; done'
ready
~~~

~~~console
$ echo "it is $secret" > saying; mv saying said
~~~

~~~console other
it is <secret>
...
~~~
`)
	require.NoError(t, err)
	require.Regexp(t, `page\.md: 12 commands print what it shows, in \S+s\n$`, out)
}

func TestPagesThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"~~~console\n$ echo a\nb\n~~~":                         "page.md:2: the page shows\n    b\nand what is printed is\n    a",
		"~~~console\n$ echo a\n~~~":                            "    (nothing)\nand what is printed is\n    a",
		"~~~console\n$ true\na\n~~~":                           "    a\nand what is printed is\n    (nothing)",
		"~~~console\n$ echo a b\n<x> <x>\n~~~":                 "    a b",
		"~~~console\n$ echo a\n<x>\n$ echo b\n<x>\n~~~":        "page.md:4: ",
		"~~~console\n$ echo a\n<x:1>\n~~~":                     "    a",
		"~~~console\n$ false\n~~~":                             "it ends with code 1 and says nothing of why",
		"~~~console\n$ echo apiary: no\napiary: no\n~~~":       "it says that something went wrong and ends with code 0",
		"~~~console\n$ exit 3\n~~~":                            "the shell has ended",
		"~~~console\na\n~~~":                                   "page.md:2: output of no command",
		"~~~console a b\n~~~":                                  "page.md:1: a terminal has one name",
		"~~~console\n$ true\n":                                 "the last block does not end",
		"~~~console x\n$ seq 2\n1\n~~~":                        `terminal "x", "seq 2": it has printed what no block shows` + "\n    2",
		"~~~console x\n$ echo b; exec sleep 60\na\n~~~":        "    a\nand what is printed is\n    b",
		"~~~console x\n$ echo a\na\n~~~\n~~~console x\nb\n~~~": "page.md:6: the page shows\n    b",
		// The shell dies of a Ctrl-C that comes before it waits for its command, which says nothing of how that ends.
		"~~~console x\n$ bash -c 'trap \"exit 7\" INT; sleep 0.1; echo a; while :; do sleep 0.02; done'\na\n~~~": "it ends with code 7 and says nothing of why",
		"~~~console x\n$ seq 2\n1\n~~~\n~~~console x\n$ true\n~~~":                                               "has printed what no block shows: 2",
	} {
		_, err := walked(t, text)
		require.ErrorContains(t, err, want, text)
	}
	require.Error(t, run(t.Context(), nil, nil, &strings.Builder{}))
	require.Error(t, run(t.Context(), []string{"nowhere.md"}, nil, &strings.Builder{}))
}

func TestBlocksWithCurlNeedCurl(t *testing.T) {
	b := block{steps: []step{{command: `curl -s localhost`}}}
	require.True(t, b.uses("curl"))
	b = block{steps: []step{{command: `echo curly`}}}
	require.False(t, b.uses("curl"))
}
