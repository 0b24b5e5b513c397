package access

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/nostr"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// MaxKeys is how many keys one question may hold.
const MaxKeys = 4096

// ErrUndecided says that an answer was not complete.
var ErrUndecided = errors.New("access is undecided")

// Checker is the one call of search that access needs; the generated client satisfies it.
type Checker interface {
	CheckAccess(ctx context.Context, in *searchv1.CheckAccessRequest, opts ...grpc.CallOption) (*searchv1.CheckAccessResponse, error)
}

// Question asks which keys may read a topic, from a state at least as new as Min.
type Question struct {
	Community int64
	Channel   string
	Keys      []nostr.PubKey
	Min       Versions
}

// Answer says for each key whether it may, and whether it moderates the community, from a state of versions At. The state is at least as new as
// asked for, that is search's promise; At may still be lower than Question.Min, because a channel that was
// deleted has no version. One that is made anew under its id begins above all that it had.
type Answer struct {
	Keys    []nostr.PubKey
	Allowed []bool
	// Moderator and Until are as long as Allowed. Until is when the verdict ends by itself, 0 for never, and later than Min.Time.
	Moderator []bool
	Until     []int64
	At        Versions
	// Min is the question's.
	Min Versions
}

// Ask calls search once.
func Ask(ctx context.Context, c Checker, q Question) (Answer, error) {
	in := &searchv1.CheckAccessRequest{
		Community:              q.Community,
		Channel:                q.Channel,
		Pubkeys:                make([][]byte, len(q.Keys)),
		MinCommunityAclVersion: q.Min.Community,
		MinChannelAclVersion:   q.Min.Channel,
		MinTime:                q.Min.Time,
	}
	for i := range q.Keys {
		in.Pubkeys[i] = q.Keys[i][:]
	}
	out, err := c.CheckAccess(ctx, in)
	if err != nil {
		return Answer{}, fmt.Errorf("check access: %w", err)
	}
	moderator := out.GetModerator()
	if len(moderator) == 0 {
		moderator = make([]bool, len(q.Keys)) // a replica of an older release: what is not known is not allowed
	}
	until := out.GetUntil()
	if len(until) == 0 {
		until = make([]int64, len(q.Keys)) // likewise: ingest raises the version once it notices that something has ended
	}
	ended := func(at int64) bool { return !q.Min.precede(at) }
	if len(out.GetAllowed()) != len(q.Keys) || len(moderator) != len(q.Keys) || len(until) != len(q.Keys) || slices.ContainsFunc(until, ended) {
		return Answer{}, fmt.Errorf("check access of %d keys: %w", len(q.Keys), ErrUndecided)
	}
	at := Versions{Community: out.GetCommunityAclVersion(), Channel: out.GetChannelAclVersion()}
	return Answer{Keys: q.Keys, Allowed: out.GetAllowed(), Moderator: moderator, Until: until, At: at, Min: q.Min}, nil
}
