package cases

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// The negentropy protocol V1, as far as a client needs it that has nothing, or everything.
const (
	negVersion     = "61"
	negHave        = negVersion + "000002" // one range up to infinity with a list of ids
	negFingerprint = negVersion + "000001" // one range up to infinity with a fingerprint
)

// negOpen sends a NEG-OPEN and returns the frame that answers it.
func negOpen(t *suite.T, u *suite.User, f any, message string) *client.Frame {
	id, mark := u.Conn().NewSub(), u.Conn().Mark()
	send(t, u, "NEG-OPEN", id, f, message)
	ctx, cancel := t.Step()
	defer cancel()
	answer, _, err := u.Conn().Await(ctx, mark, func(f *client.Frame) bool {
		return f.Sub == id && (f.Label == client.LabelNegMsg || f.Label == client.LabelNegErr)
	})
	t.Check(err == nil, "NEG-MSG or NEG-ERR", "%v", err)
	return answer
}

// fingerprint is the digest of a set of events.
func fingerprint(events []*nostr.Event) string {
	sum := new(big.Int)
	for _, e := range events {
		id := slices.Clone(e.ID[:])
		slices.Reverse(id) // they are little-endian numbers
		sum.Add(sum, new(big.Int).SetBytes(id))
	}
	sum.Mod(sum, new(big.Int).Lsh(big.NewInt(1), 256))
	digest := sum.FillBytes(make([]byte, 32))
	slices.Reverse(digest)
	digest = append(digest, byte(len(events))) // a varint below 128
	hash := sha256.Sum256(digest)
	return hex.EncodeToString(hash[:16])
}

// negIDs returns all ids in the lists of a message, and whether some range is left to be talked about.
func negIDs(message string) (ids []string, open bool, err error) {
	b, err := hex.DecodeString(message)
	if err != nil {
		return nil, false, err
	}
	if len(b) == 0 || b[0] != 0x61 {
		return nil, false, errors.New("not version 1")
	}
	r := negReader{b: b[1:]}
	for len(r.b) > 0 && r.err == nil {
		r.varint()          // the bound's time
		r.bytes(r.varint()) // and its id prefix
		switch r.varint() {
		case 0:
		case 1:
			r.bytes(16)
			open = true
		case 2:
			for range r.varint() {
				ids = append(ids, hex.EncodeToString(r.bytes(32)))
				if r.err != nil {
					break
				}
			}
		default:
			r.err = errors.New("unknown mode")
		}
	}
	return ids, open, r.err
}

// negReader reads a negentropy message; after an error everything is zero.
type negReader struct {
	b   []byte
	err error
}

func (r *negReader) varint() int {
	n := 0
	for i, b := range r.b {
		n = n<<7 | int(b&0x7f)
		if b&0x80 == 0 && i < 9 {
			r.b = r.b[i+1:]
			return n
		}
	}
	r.err, r.b = errors.New("bad varint"), nil
	return 0
}

func (r *negReader) bytes(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.err, r.b = errors.New("message breaks off"), nil
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

var nip77 = []suite.Case{
	{ID: "nothing-here", Title: "a client that has nothing learns of every id", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := notes(alice, t.Past(5))
		alice.Accept(list...)
		f := negOpen(t, alice, by(alice), negHave+"00")
		t.Check(f.Label == client.LabelNegMsg, "NEG-MSG", "%s", f)
		got, _, err := negIDs(f.Message)
		t.Check(err == nil, "a negentropy message", "%v in %s", err, f)
		want := only(list...).IDs
		slices.Sort(want)
		slices.Sort(got)
		t.Check(slices.Equal(want, got), fmt.Sprint(want), "%v", got)
	}},
	{ID: "everything-here", Title: "a client that has the same events is told of no difference", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := notes(alice, t.Past(5))
		alice.Accept(list...)
		f := negOpen(t, alice, by(alice), negFingerprint+fingerprint(list))
		t.Check(f.Label == client.LabelNegMsg, "NEG-MSG", "%s", f)
		got, open, err := negIDs(f.Message)
		t.Check(err == nil && len(got) == 0 && !open, "a message without ids or fingerprints", "%s", f)
	}},
	{ID: "difference", Title: "a client that lacks one event is told so", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := notes(alice, t.Past(5))
		alice.Accept(list...)
		f := negOpen(t, alice, by(alice), negFingerprint+fingerprint(list[1:]))
		t.Check(f.Label == client.LabelNegMsg, "NEG-MSG", "%s", f)
		got, open, err := negIDs(f.Message)
		t.Check(err == nil && (open || slices.Contains(got, list[0].ID.String())), "the missing id, or a closer question", "%s", f)
	}},
	{ID: "bad-message", Title: "a message that is none is answered with NEG-ERR", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		f := negOpen(t, alice, by(alice), negHave+strings.Repeat("ff", 20))
		t.Check(f.Label == client.LabelNegErr, "NEG-ERR", "%s", f)
	}},
	{ID: "unknown-version", Title: "a version that the relay does not know is answered with the one it knows", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		f := negOpen(t, alice, by(alice), "6f")
		t.Check(f.Label == client.LabelNegErr || f.Message == negVersion, "NEG-MSG "+negVersion, "%s", f)
	}},
	{ID: "close", Title: "NEG-CLOSE is taken", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		f := negOpen(t, alice, by(alice), negHave+"00")
		send(t, alice, "NEG-CLOSE", f.Sub)
		alice.Query(by(alice))
	}},
}
