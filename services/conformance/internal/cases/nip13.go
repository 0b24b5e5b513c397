package cases

import (
	"fmt"
	"math/bits"
	"strconv"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// maxMining is the difficulty up to which a case mines: a few seconds of work.
const maxMining = 20

// difficulty is the number of leading zero bits of an id.
func difficulty(id nostr.ID) int {
	n := 0
	for _, b := range id {
		n += bits.LeadingZeros8(b)
		if b != 0 {
			break
		}
	}
	return n
}

// mine signs a note whose id has at least the difficulty, and which commits to target.
func mine(t *suite.T, u *suite.User, least, target int) *nostr.Event {
	e := &nostr.Event{PubKey: u.Pub, CreatedAt: t.Now(), Kind: nostr.KindText, Content: "mined"}
	for nonce := 0; ; nonce++ {
		e.Tags = nostr.Tags{{"nonce", strconv.Itoa(nonce), strconv.Itoa(target)}}
		if difficulty(e.ComputeID()) >= least {
			return u.Event(e.CreatedAt, e.Kind, e.Content, e.Tags...)
		}
		if nonce%10_000 == 0 {
			t.Check(t.Context().Err() == nil, "time to mine", "%v", t.Context().Err())
		}
	}
}

// demanded returns the difficulty that the relay states.
func demanded(t *suite.T) int {
	least := t.Relay().Limits().MinPowDifficulty
	if least == nil || *least <= 0 {
		t.NotClaimed("the relay demands no proof of work")
	}
	if *least > maxMining {
		t.NotClaimed("a difficulty of %d is too much to mine here", *least)
	}
	return int(*least)
}

var nip13 = []suite.Case{
	{ID: "accepted", Title: "an event with a proof of work is accepted", Required: true, Run: func(t *suite.T) {
		least := 8
		if stated := t.Relay().Limits().MinPowDifficulty; stated != nil {
			least = max(least, int(*stated))
		}
		if least > maxMining {
			t.NotClaimed("a difficulty of %d is too much to mine here", least)
		}
		alice := t.User()
		e := mine(t, alice, least, least)
		alice.Accept(e)
		unchanged(t, e, alice.Query(only(e)))
	}},
	{ID: "refused", Title: "an event below min_pow_difficulty is refused with pow:", Required: true, Run: func(t *suite.T) {
		least := demanded(t)
		alice := t.User()
		e := alice.Note("not mined")
		for i := 0; difficulty(e.ID) >= least; i++ {
			e = alice.Note(fmt.Sprintf("not mined %d", i))
		}
		alice.Refuse(e, "pow")
	}},
	{ID: "commitment", Title: "an event that commits to less than min_pow_difficulty is refused, however lucky", Run: func(t *suite.T) {
		least := demanded(t)
		alice := t.User()
		alice.Refuse(mine(t, alice, least, least-1), "pow")
	}},
}
