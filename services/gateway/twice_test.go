package gateway_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
)

// An ephemeral event whose replica died before it answered is sent again, so the stream holds it twice; one
// node has delivered the first copy, the next, which was not there then, takes the second for news.
func TestAnEventThatIsInTheStreamTwiceIsSentOnce(t *testing.T) {
	w := newWorld(t, fanouts(2))
	w.linked()
	for _, f := range w.fanouts {
		f.setHead(10)
	}
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0}]`)
	c.eose("s")
	first, _ := w.subscribed()
	typed := envelope(t, "", 0, nostrtest.Content("typing"), nostrtest.Kind(20001))
	w.fanouts[first].publish(11, typed)
	require.Equal(t, idOf(t, typed), c.event("s"))

	w.fanouts[1-first].answer(func(l *link, s *fanoutv1.Subscribe) bool {
		l.attached(s, 13)
		l.deliver(14, typed, s.GetHandle())
		l.deliver(15, numbered(t, 15), s.GetHandle())
		return true
	})
	w.stop("fanout-" + strconv.Itoa(first))
	w.subscribed()
	require.Equal(t, idOf(t, numbered(t, 15)), c.event("s"))
}

// The copy that comes second is a repeat only if it also stands behind the other in the stream: somebody
// who is being brought up to date gets the first copy when others have long had it.
func TestTheFirstCopyIsNoRepeatForWhoeverComesLater(t *testing.T) {
	w := newWorld(t)
	w.fanouts[0].setHead(10)
	alice, bob := w.login(openHost, "alice"), w.login(openHost, "bob")
	alice.send(`["REQ","a",{"limit":0}]`)
	alice.eose("a")
	a := take(t, w.fanouts[0].subscribed)
	bob.send(`["REQ","b",{"limit":0}]`)
	bob.eose("b")
	b := take(t, w.fanouts[0].subscribed)

	l, copied := w.fanouts[0].link(t), numbered(t, 11)
	l.deliver(12, copied, a.GetHandle())
	require.Equal(t, idOf(t, copied), alice.event("a"))
	l.deliver(11, copied, b.GetHandle())
	require.Equal(t, idOf(t, copied), bob.event("b"))
	l.deliver(12, copied, b.GetHandle())
	l.deliver(13, numbered(t, 13), a.GetHandle(), b.GetHandle())
	require.Equal(t, idOf(t, numbered(t, 13)), alice.event("a"))
	require.Equal(t, idOf(t, numbered(t, 13)), bob.event("b"))
}

// The same id in another community is another event.
func TestOneEventInTwoCommunitiesIsTwo(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0}]`)
	c.eose("s")
	s := take(t, w.fanouts[0].subscribed)
	l := w.fanouts[0].link(t)
	here, there := numbered(t, 11), numbered(t, 11)
	there.Header.Community++
	l.deliver(11, there, 999_999)
	l.deliver(12, here, s.GetHandle())
	require.Equal(t, idOf(t, here), c.event("s"))
}
