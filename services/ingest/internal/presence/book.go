package presence

import (
	"container/list"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
)

// userKey is a public key in a community.
type userKey struct {
	community int64
	pubkey    nostr.PubKey
}

// book is the state of the bucket. The zero value is not usable: newBook makes one. It is bounded by the bucket.
type book struct {
	users map[userKey]*user
	// recorded holds the sessions, least recently recorded first.
	recorded list.List
	// marks say what was deleted, by what each was; marked holds them, least recently deleted first.
	marks  map[place]*list.Element
	marked list.List
	// epoch is the bucket's incarnation that entries come from.
	epoch uint64
}

// user is a key with at least one session.
type user struct {
	key userKey
	// status is the latest that was announced, at announcedAt; empty for none.
	status      string
	announcedAt int64
	// word is the event that the relay has signed about it last, at saidAt in Unix seconds; nil for none.
	word     []byte
	saidAt   int64
	sessions map[string]*list.Element // by gateway
}

// session is one record.
type session struct {
	user    *user
	gateway string
	// epoch and revision say which entry it is, at when it came.
	epoch, revision uint64
	at              time.Time
}

// place is what a record is about.
type place struct {
	userKey
	gateway string
}

// mark is the mark that a record was deleted, which the bucket keeps as long as a record.
type mark struct {
	place
	epoch, revision uint64
	at              time.Time
}

// departure is the end of the last session of somebody who was online. Every replica that follows the bucket gives
// it the same epoch and revision, and no other departure has them.
type departure struct {
	userKey
	epoch, revision uint64
}

func newBook() *book {
	return &book{users: make(map[userKey]*user), marks: make(map[place]*list.Element)}
}

// record takes an entry. One that comes again is no newer than it was.
func (b *book) record(k userKey, gateway string, r *busv1.PresenceRecord, revision uint64, now time.Time) {
	b.unmark(place{k, gateway})
	u := b.users[k]
	if u == nil {
		u = &user{key: k, sessions: make(map[string]*list.Element)}
		b.users[k] = u
	}
	if at := r.GetAnnouncedAt(); at > 0 && at >= u.announcedAt {
		if at > u.announcedAt {
			u.word = nil
		}
		u.status, u.announcedAt = r.GetStatus(), at
	}
	e := u.sessions[gateway]
	if e == nil {
		u.sessions[gateway] = b.recorded.PushBack(&session{user: u, gateway: gateway, epoch: b.epoch, revision: revision, at: now})
		return
	}
	s := sessionOf(e)
	if s.epoch == b.epoch && s.revision == revision {
		return
	}
	s.epoch, s.revision, s.at = b.epoch, revision, now
	b.recorded.MoveToBack(e)
}

// remove takes the mark that a record was deleted.
func (b *book) remove(k userKey, gateway string, revision uint64, now time.Time) (departure, bool) {
	p := place{k, gateway}
	b.unmark(p)
	b.marks[p] = b.marked.PushBack(&mark{place: p, epoch: b.epoch, revision: revision, at: now})
	e := b.session(k, gateway)
	if e == nil {
		return departure{}, false
	}
	return b.drop(e, b.epoch, revision)
}

func (b *book) unmark(p place) {
	if e := b.marks[p]; e != nil {
		b.marked.Remove(e)
		delete(b.marks, p)
	}
}

// revision is that of the last entry about a key at a gateway in the bucket, or of the mark that it was deleted; 0 if there is
// neither.
func (b *book) revision(k userKey, gateway string) uint64 {
	if e := b.session(k, gateway); e != nil {
		if s := sessionOf(e); s.epoch == b.epoch {
			return s.revision
		}
	} else if e := b.marks[place{k, gateway}]; e != nil {
		if m := markOf(e); m.epoch == b.epoch {
			return m.revision
		}
	}
	return 0
}

// expire ends the sessions that were recorded before some time, and forgets what was deleted before it.
func (b *book) expire(before time.Time) []departure {
	for e := b.marked.Front(); e != nil && markOf(e).at.Before(before); e = b.marked.Front() {
		b.unmark(markOf(e).place)
	}
	var all []departure
	for e := b.recorded.Front(); e != nil && sessionOf(e).at.Before(before); e = b.recorded.Front() {
		if d, ok := b.drop(e, sessionOf(e).epoch, sessionOf(e).revision); ok {
			all = append(all, d)
		}
	}
	return all
}

// hasExpired reports whether expire would do something.
func (b *book) hasExpired(before time.Time) bool {
	e, m := b.recorded.Front(), b.marked.Front()
	return (e != nil && sessionOf(e).at.Before(before)) || (m != nil && markOf(m).at.Before(before))
}

// drop ends a session because of the entry that epoch and revision name.
func (b *book) drop(e *list.Element, epoch, revision uint64) (departure, bool) {
	s := sessionOf(e)
	b.recorded.Remove(e)
	delete(s.user.sessions, s.gateway)
	if len(s.user.sessions) > 0 {
		return departure{}, false
	}
	delete(b.users, s.user.key)
	return departure{userKey: s.user.key, epoch: epoch, revision: revision}, isOnline(s.user.status)
}

// said returns what the relay has signed about a key's present status, unless that was before since; nil for nothing.
func (b *book) said(k userKey, since int64) []byte {
	if u := b.users[k]; u != nil && u.saidAt >= since {
		return u.word
	}
	return nil
}

// say keeps what the relay has signed about the status that a key announced at some time.
func (b *book) say(k userKey, announcedAt int64, word []byte, saidAt int64) {
	if u := b.users[k]; u != nil && u.announcedAt == announcedAt {
		u.word, u.saidAt = word, saidAt
	}
}

func (b *book) session(k userKey, gateway string) *list.Element {
	if u := b.users[k]; u != nil {
		return u.sessions[gateway]
	}
	return nil
}

// status returns what a key announced last and when; empty for one without a session.
func (b *book) status(k userKey) (status string, announcedAt int64) {
	if u := b.users[k]; u != nil {
		return u.status, u.announcedAt
	}
	return "", 0
}

func sessionOf(e *list.Element) *session {
	s, _ := e.Value.(*session) // nothing else is in the list
	return s
}

func markOf(e *list.Element) *mark {
	m, _ := e.Value.(*mark) // nothing else is in the list
	return m
}
