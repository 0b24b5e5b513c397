package cases

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/bits"
	"regexp"
	"strconv"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// counted fails the case unless the COUNT is n, exactly.
func counted(t *suite.T, n int64, f *client.Frame) {
	t.Check(f.Label == client.LabelCount && *f.Count.Count == n, fmt.Sprintf("COUNT %d", n), "%s", f)
}

var nip45 = []suite.Case{
	{ID: "count", Title: "COUNT counts what is stored", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		counted(t, 0, alice.Count(by(alice)))
		alice.Accept(notes(alice, t.Past(7))...)
		alice.Accept(alice.Event(t.Now(), nostr.KindReaction, "+"))
		alice.Offer(alice.Event(t.Now(), kindEphemeral, "not stored"))
		counted(t, 8, alice.Count(by(alice)))
		counted(t, 7, alice.Count(filter{Authors: []string{alice.Hex}, Kinds: kindText1}))
	}},
	{ID: "once-over-filters", Title: "an event that matches several filters is counted once", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := notes(alice, t.Past(5))
		alice.Accept(list...)
		counted(t, 5, alice.Count(by(alice), only(list[0], list[1]), filter{Authors: []string{alice.Hex}, Kinds: kindText1}))
	}},
	{ID: "several-filters", Title: "what matches any of the filters is counted", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		alice.Accept(notes(alice, t.Past(3))...)
		bob.Accept(notes(bob, t.Past(4))...)
		counted(t, 7, alice.Count(by(alice), by(bob)))
	}},
	{ID: "replaced", Title: "a version that was replaced is not counted", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		for _, at := range t.Past(3) {
			alice.Accept(alice.Event(at, kindReplaceable, ""))
		}
		counted(t, 1, alice.Count(by(alice)))
	}},
	{ID: "deleted", Title: "a deleted event is not counted (NIP-09)", Required: true, Needs: []int{9}, Run: func(t *suite.T) {
		alice := t.User()
		list := notes(alice, t.Past(3))
		alice.Accept(list...)
		alice.Accept(deletion(alice, t.Now(), refID(list[0])))
		counted(t, 2, alice.Count(filter{Authors: []string{alice.Hex}, Kinds: kindText1}))
	}},
	{ID: "kinds-empty", Title: "kinds: [] counts nothing, or is refused", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		alice.Accept(alice.Note("not meant"))
		f := alice.Count(with(alice, "kinds", []int{}))
		t.Check(f.Label == client.LabelClosed || *f.Count.Count == 0, "0, or CLOSED", "%s", f)
	}},
	{ID: "is-no-subscription", Title: "COUNT opens no subscription", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		alice.Count(by(alice))
		mark := alice.Conn().Mark()
		witness := alice.Open(by(alice))
		e := alice.Note("later")
		alice.Accept(e)
		witness.Expect(e)
		witness.Silent("the event once")
		for _, f := range alice.Conn().Since(mark) {
			t.Check(f.Label != client.LabelEvent || f.Sub == witness.ID, "events for the subscription only", "%s", &f)
		}
	}},
	{ID: "beside-a-subscription", Title: "a COUNT with the id of a subscription does not disturb it", Run: func(t *suite.T) {
		alice := t.User()
		sub := alice.OpenAs("same", by(alice))
		ctx, cancel := t.Step()
		defer cancel()
		mark := alice.Conn().Mark()
		send(t, alice, "COUNT", "same", by(alice))
		_, _, err := alice.Conn().Await(ctx, mark, func(f *client.Frame) bool { return f.Label == client.LabelCount })
		t.Check(err == nil, "COUNT", "%v", err)
		e := alice.Note("later")
		alice.Accept(e)
		sub.Expect(e)
	}},
	{ID: "no-filter", Title: "a COUNT without a filter is answered CLOSED", Required: true, Run: func(t *suite.T) {
		f := t.User().Count()
		t.Check(f.Label == client.LabelClosed, "CLOSED", "%s", f)
	}},
	{ID: "bad-filter", Title: "a COUNT with a bad filter is answered CLOSED", Required: true, Run: func(t *suite.T) {
		f := t.User().Count(object{"kinds": "1"})
		t.Check(f.Label == client.LabelClosed, "CLOSED", "%s", f)
	}},
	{ID: "hll-event", Title: "the HyperLogLog of reactions to an event has the registers of NIP-45", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		target := alice.Note("react to this")
		alice.Accept(target)
		hyperLogLog(t, nostr.KindReaction, "e", target.ID.String())
	}},
	{ID: "hll-key", Title: "the HyperLogLog of followers of a key has the registers of NIP-45", Required: true, Run: func(t *suite.T) {
		hyperLogLog(t, nostr.KindContacts, "p", t.Key().PubKey().String())
	}},
	{ID: "hll-address", Title: "the HyperLogLog of comments on an address has the registers of NIP-45", Required: true, Run: func(t *suite.T) {
		hyperLogLog(t, 1111, "A", "30023:"+t.Key().PubKey().String()+":article")
	}},
	{ID: "hll-text", Title: "the HyperLogLog of what a text tags has the registers of NIP-45", Required: true, Run: func(t *suite.T) {
		hyperLogLog(t, 1111, "I", "https://example.com/"+t.Key().PubKey().String())
	}},
}

// hyperLogLog lets some keys publish events with the tag and compares the registers with those of NIP-45.
func hyperLogLog(t *suite.T, kind nostr.Kind, name, value string) {
	users := t.Users(12)
	for _, u := range users {
		u.Accept(u.Event(t.Now(), kind, "", tag(name, value)))
	}
	f := users[0].Count(object{"kinds": []nostr.Kind{kind}, "#" + name: []string{value}})
	t.Check(f.Label == client.LabelCount, "COUNT", "%s", f)
	if f.Count.HLL == "" {
		t.NotClaimed("the answer has no hll")
	}
	var registers [256]byte
	offset := hllOffset(value)
	for _, u := range users {
		zeros := 0
		for _, b := range u.Pub[offset+1:] {
			zeros += bits.LeadingZeros8(b)
			if b != 0 {
				break
			}
		}
		at := u.Pub[offset]
		registers[at] = max(registers[at], byte(zeros+1))
	}
	want := hex.EncodeToString(registers[:])
	t.Check(strings.EqualFold(f.Count.HLL, want), want, "%s", f.Count.HLL)
}

var addressText = regexp.MustCompile(`^\d+:([0-9a-f]{64}):`)

// hllOffset is the position in public keys at which NIP-45 looks for a filter on this value.
func hllOffset(value string) int {
	if m := addressText.FindStringSubmatch(value); m != nil {
		value = m[1]
	}
	if !hex64.MatchString(value) {
		sum := sha256.Sum256([]byte(value))
		value = hex.EncodeToString(sum[:])
	}
	digit, _ := strconv.ParseUint(value[32:33], 16, 8) // hex, by construction
	return int(digit) + 8
}
