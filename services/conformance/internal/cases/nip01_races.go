package cases

import (
	"context"
	"fmt"
	"strconv"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// writers is how many connections publish versions of one address at a time.
const writers = 64

func races() []suite.Case {
	var list []suite.Case
	for _, v := range []versioned{versions[2], versions[3]} {
		for _, tie := range []bool{false, true} {
			c := suite.Case{
				ID:       "race/" + v.id,
				Title:    fmt.Sprintf("kind %d: of versions published at once over %d connections the newest wins and the others vanish", v.kind, writers),
				Required: true,
				Run:      func(t *suite.T) { race(t, &v, tie) },
			}
			if tie {
				c.ID += "-tie"
				c.Title = fmt.Sprintf("kind %d: of versions of one second published at once over %d connections the lowest id wins", v.kind, writers)
			}
			list = append(list, c)
		}
	}
	return append(list, suite.Case{
		ID: "race/same-event", Title: fmt.Sprintf("one event published at once over %d connections is accepted by all and delivered once", writers), Required: true, Run: raceOfOne,
	})
}

// race lets many connections of one author publish versions at the same time.
func race(t *suite.T, v *versioned, tie bool) {
	alice, reader := t.User(), t.User()
	at := t.Past(writers)
	all := make([]*nostr.Event, writers)
	for i := range all {
		second := at[i]
		if tie {
			second = at[writers-1]
		}
		all[i] = v.at(alice, second, tag("x", strconv.Itoa(i)))
	}
	t.Rand().Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	sub := reader.Open(v.find(alice))
	together(t, alice, all)

	winner := newestFirst(all...)[0]
	t.Same("the winner alone", []*nostr.Event{winner}, reader.Query(v.find(alice)))
	t.Same("the winner alone, by its author", []*nostr.Event{winner}, reader.Query(by(alice)))
	live := sub.Live(1)
	t.Check(len(live) > 0, "the winner comes live", "nothing")
	last := live[0]
	for _, e := range live {
		if e.ID == winner.ID {
			last = e
		}
	}
	t.Check(last.ID == winner.ID, "the winner "+winner.ID.String()+" comes live", "%d other versions", len(live))
}

// raceOfOne publishes the same event over many connections.
func raceOfOne(t *suite.T) {
	alice, reader := t.User(), t.User()
	e := alice.Note("the same")
	all := make([]*nostr.Event, writers)
	for i := range all {
		all[i] = e
	}
	sub := reader.Open(by(alice))
	for _, accepted := range together(t, alice, all) {
		t.Check(accepted, "OK true for each", "OK false")
	}
	sub.Expect(e)
	sub.Silent("the event once")
	t.Same("the event once", []*nostr.Event{e}, reader.Query(by(alice)))
}

// together publishes each event over a connection of its own, all at once, and returns the verdicts.
func together(t *suite.T, alice *suite.User, all []*nostr.Event) []bool {
	users := make([]*suite.User, len(all))
	for i := range users {
		users[i] = alice.Again()
	}
	accepted := make([]bool, len(all))
	t.Each(len(all), "every EVENT is answered with an OK", func(ctx context.Context, i int) error {
		v, err := users[i].Conn().Publish(ctx, all[i])
		accepted[i] = v.OK
		return err
	})
	return accepted
}
