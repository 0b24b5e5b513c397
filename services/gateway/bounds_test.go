package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// list returns n quoted values, without brackets.
func list(n int, format string) string {
	values := make([]string, n)
	for i := range values {
		values[i] = `"` + fmt.Sprintf(format, i) + `"`
	}
	return strings.Join(values, ",")
}

// A REQ may be large and listen on many channels: together its commands are far more than one message
// between services may hold. A message that is refused would end the link of everybody.
func TestWhatOneClientAsksForBreaksNoLink(t *testing.T) {
	w := newWorld(t)
	other := w.login(openHost, "bob")
	other.send(`["REQ","s",{"limit":0}]`)
	other.eose("s")
	link := w.fanouts[0].link(t)

	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0,"#h":[` + list(100, "c%d") + `],"#e":[` + list(2000, "%064x") + `]}]`)
	c.eose("s")
	require.Same(t, link, w.fanouts[0].link(t), "the link has been the same all the time")
	e := envelope(t, "c7", 1)
	w.fanouts[0].publish(1, e)
	require.Equal(t, idOf(t, e), c.event("s"))
}
