package store

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// second returns a store of another replica on the same database.
func (f *fixture) second() *Store {
	f.t.Helper()
	return New(pgtest.NewAs(f.t, "apiary_ingest"), partitions, WithKey(nostrtest.Key("relay")))
}

// room is what the model knows of a channel: no SQL, no locks, one thing after the other.
type room struct {
	exists, private, archived bool
	topic                     string
	roles                     map[string]string // by key
	codes                     map[string]bool
}

func (r *room) manages(key string) bool { return r.roles[key] == "owner" || r.roles[key] == "admin" }

func (r *room) owners() int {
	n := 0
	for _, role := range r.roles {
		if role == "owner" {
			n++
		}
	}
	return n
}

// visible reports whether somebody can tell that there is such a channel.
func (r *room) visible(key string) bool { return r.exists && (!r.private || r.roles[key] != "") }

// step is one command of the model: what is sent, and what it does if the model allows it.
type step struct {
	kind  nostr.Kind
	tags  []nostrtest.Option
	allow bool
	apply func()
}

func (r *room) create(key string, private bool) step {
	s := step{kind: nostr.KindCreateGroup, allow: !r.exists, apply: func() {
		*r = room{exists: true, private: private, roles: map[string]string{key: "owner"}, codes: map[string]bool{}}
	}}
	if private {
		s.tags = append(s.tags, nostrtest.Tag("private"))
	}
	return s
}

func (r *room) put(key, target, role string) step {
	s := step{kind: nostr.KindPutUser, tags: []nostrtest.Option{nostrtest.Tag("p", target)}}
	if role != "" {
		s.tags = append(s.tags, nostrtest.Tag("role", role))
	}
	was := r.roles[target]
	becomes := role
	if becomes == "" {
		becomes = was
	}
	if becomes == "" {
		becomes = "member"
	}
	s.apply = func() { r.roles[target] = becomes }
	s.allow = r.visible(key) && !r.archived
	switch {
	case !s.allow:
	case was == becomes:
		s.allow = !r.private || r.manages(key) || key == target
	case r.roles[key] == "owner":
		s.allow = was != "owner" || r.owners() > 1
	case r.roles[key] == "admin":
		s.allow = was != "owner" && becomes != "owner"
	default:
		s.allow = was == "" && !r.private && becomes != "owner" && becomes != "admin"
	}
	return s
}

func (r *room) remove(key, target string) step {
	s := step{kind: nostr.KindRemoveUser, tags: []nostrtest.Option{nostrtest.Tag("p", target)}, apply: func() { delete(r.roles, target) }}
	was := r.roles[target]
	s.allow = r.visible(key) && !r.archived && was != "" && (was != "owner" || r.owners() > 1) &&
		(key == target || r.roles[key] == "owner" || (r.roles[key] == "admin" && was != "owner"))
	return s
}

func (r *room) leave(key string) step {
	s := r.remove(key, key)
	s.kind, s.tags = nostr.KindLeaveRequest, nil
	return s
}

func (r *room) join(key, code string) step {
	return step{
		kind: nostr.KindJoinRequest, tags: []nostrtest.Option{nostrtest.Tag("code", code)},
		allow: r.exists && (!r.private || r.codes[code]) && !r.archived && r.roles[key] == "",
		apply: func() { r.roles[key] = "member" },
	}
}

func (r *room) invite(key, code string) step {
	return step{
		kind: nostr.KindCreateInvite, tags: []nostrtest.Option{nostrtest.Tag("code", code)},
		allow: r.exists && !r.archived && r.manages(key), apply: func() { r.codes[code] = true },
	}
}

func (r *room) edit(key, tag, value string) step {
	s := step{kind: nostr.KindEditMetadata, tags: []nostrtest.Option{nostrtest.Tag(tag, value)}}
	switch tag {
	case "topic":
		s.allow = r.exists && !r.archived && r.roles[key] != ""
		s.apply = func() { r.topic = value }
	case "visibility":
		s.allow = r.exists && !r.archived && r.manages(key)
		s.apply = func() { r.private = value == "private" }
	default:
		s.allow = r.exists && (!r.archived || value == "false") && r.manages(key)
		s.apply = func() { r.archived = value == "true" }
	}
	return s
}

func (r *room) remove9008(key string) step {
	return step{
		kind: nostr.KindDeleteGroup, allow: r.exists && !r.archived && r.roles[key] == "owner",
		apply: func() { *r = room{} },
	}
}

// drawStep draws a command of somebody.
func (r *room) drawStep(t *rapid.T, actor, target string) step {
	code := rapid.SampledFrom([]string{"open sesame", "open barley"}).Draw(t, "code")
	role := rapid.SampledFrom([]string{"", "owner", "admin", "member", "guest", "bot"}).Draw(t, "role")
	flag := rapid.Bool().Draw(t, "flag")
	switch rapid.IntRange(0, 13).Draw(t, "command") {
	case 0, 1:
		return r.create(actor, flag)
	case 2, 3, 4, 5:
		return r.put(actor, target, role)
	case 6, 7:
		return r.remove(actor, target)
	case 8:
		return r.leave(actor)
	case 9:
		return r.join(actor, code)
	case 10:
		return r.invite(actor, code)
	case 11:
		return r.edit(actor, "topic", role)
	case 12:
		return r.edit(actor, "visibility", map[bool]string{true: "private", false: "open"}[flag])
	}
	if rapid.IntRange(0, 4).Draw(t, "end") == 0 {
		return r.remove9008(actor)
	}
	return r.edit(actor, "archived", strconv.FormatBool(flag))
}

// TestChannelsAreAsTheModelSays sends random commands of several keys through two replicas, and compares the verdicts,
// the members, and what the relay has signed with a model, after each.
func TestChannelsAreAsTheModelSays(t *testing.T) {
	f := newFixture(t).withKey()
	stores := []*Store{f.Store, f.second()}
	names := []string{"alice", "bob", "carol", "dave"}
	channels, serial := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		channels++
		channel := "channel-" + strconv.Itoa(channels)
		r := &room{}
		for range rapid.IntRange(1, 14).Draw(rt, "steps") {
			actor, target := rapid.SampledFrom(names).Draw(rt, "actor"), rapid.SampledFrom(names).Draw(rt, "target")
			s := r.drawStep(rt, nostrtest.PubKey(actor).String(), nostrtest.PubKey(target).String())
			serial++
			c := f.command(f.community, actor, s.kind, append(s.tags, nostrtest.Channel(channel), nostrtest.Tag("serial", strconv.Itoa(serial)))...)
			before := f.access(channel)
			result, err := stores[rapid.IntRange(0, 1).Draw(rt, "replica")].Commit(t.Context(), []*policy.Candidate{c})
			require.NoError(rt, err)
			require.Equal(rt, s.allow, result.Verdicts[0].Accepted(), "kind %d by %s: %s", s.kind, actor, result.Verdicts[0].Message)
			if s.allow {
				s.apply()
			} else {
				require.Nil(rt, result.Row, "nothing follows from what is refused")
			}
			after := f.access(channel)
			require.Equal(rt, r.exists, after.exists)
			if !r.exists {
				continue
			}
			require.Equal(rt, r.roles, f.membersOf(channel))
			require.Equal(rt, []bool{r.private, r.archived}, []bool{after.private, after.archived})
			f.requireSnapshots(channel)
			topic, _ := f.state(channel, nostr.KindGroupMetadata).Tags.First("topic")
			require.Equal(rt, r.topic, topic)
			if before.exists && (before.private != after.private || before.archived != after.archived || !maps.Equal(before.roles, after.roles)) {
				require.Greater(rt, after.version, before.version, "who may read has changed")
			}
		}
	})
}

// access is what the database has of who may do what in a channel.
type access struct {
	exists, private, archived bool
	version                   int64
	roles                     map[string]string
}

func (f *fixture) access(channel string) access {
	f.t.Helper()
	rows, err := f.admin.Query(f.t.Context(), `
SELECT visibility = 'private', archived_at IS NOT NULL, acl_version FROM ingest.channels WHERE h = $1 AND community_id = $2`, channel, f.community)
	require.NoError(f.t, err)
	var a access
	for rows.Next() {
		a.exists = true
		require.NoError(f.t, rows.Scan(&a.private, &a.archived, &a.version))
	}
	require.NoError(f.t, rows.Err())
	a.roles = f.membersOf(channel)
	return a
}

// However many owners leave, demote and remove each other at the same time on two replicas, one of them stays.
func TestTheLastOwnerStays(t *testing.T) {
	const owners, attempts = 8, 64
	f := newFixture(t).withKey()
	stores := []*Store{f.Store, f.second()}
	name := func(i int) string { return "owner " + strconv.Itoa(i%owners) }
	v, _ := f.order(f.command(f.community, name(0), nostr.KindCreateGroup, nostrtest.Channel("hall")))
	require.True(t, v.Accepted())
	for i := 1; i < owners; i++ {
		v, _ := f.order(f.command(f.community, name(0), nostr.KindPutUser, nostrtest.Channel("hall"), p(name(i)), nostrtest.Tag("role", "owner")))
		require.True(t, v.Accepted())
	}
	var accepted atomic.Int32
	var all sync.WaitGroup
	for i := range attempts {
		opts := []nostrtest.Option{nostrtest.Channel("hall"), nostrtest.Tag("serial", strconv.Itoa(i))}
		kind := nostr.KindLeaveRequest
		switch i % 3 {
		case 1:
			kind, opts = nostr.KindRemoveUser, append(opts, p(name(i+1+i/owners)))
		case 2:
			kind, opts = nostr.KindPutUser, append(opts, p(name(i)), nostrtest.Tag("role", "guest"))
		}
		c := f.command(f.community, name(i), kind, opts...)
		all.Go(func() {
			result, err := stores[i%2].Commit(t.Context(), []*policy.Candidate{c})
			if err == nil && result.Verdicts[0].Accepted() {
				accepted.Add(1)
			}
		})
	}
	all.Wait()
	require.NotZero(t, accepted.Load())
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.channel_members WHERE role = 'owner'`))
	f.requireSnapshots("hall")
}
