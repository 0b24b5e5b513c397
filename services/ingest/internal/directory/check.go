package directory

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	"github.com/apiary-relay/apiary/pkg/tenant"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

// find returns the community that a reference chooses.
func (s *Service) find(ctx context.Context, ref *ingestv1.CommunityRef) (int64, error) {
	r, err := parseRef(ref)
	if err != nil {
		return 0, err
	}
	id, err := s.Store.Find(ctx, r)
	if err != nil {
		return 0, failed(err)
	}
	return id, nil
}

func parseRef(ref *ingestv1.CommunityRef) (r store.CommunityRef, err error) {
	switch by := ref.GetBy().(type) {
	case *ingestv1.CommunityRef_Host:
		r.Host, err = normalize(by.Host)
	case *ingestv1.CommunityRef_Uuid:
		r.UUID = strings.ToLower(by.Uuid)
		if !isUUID(r.UUID) {
			err = fault.New(fault.Invalid, "malformed community id")
		}
	default:
		err = fault.New(fault.Invalid, "a host or a community id is needed")
	}
	return r, err
}

// isUUID reports whether text is a UUID in its usual form, in lower case.
func isUUID(text string) bool {
	digits := strings.ReplaceAll(text, "-", "")
	_, err := hex.DecodeString(digits)
	return err == nil && len(digits) == 32 && len(text) == 36 &&
		text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-'
}

func normalize(host string) (string, error) {
	normal, err := tenant.NormalizeHost(host)
	if err != nil {
		return "", fault.Wrap(fault.Invalid, "malformed host", err)
	}
	return normal, nil
}

// newHost is normalize for a host that a community is to have.
func newHost(host string) (string, error) {
	normal, err := normalize(host)
	if err != nil {
		return "", err
	}
	if err := tenant.ValidateHost(normal); err != nil {
		return "", fault.Wrap(fault.Invalid, "malformed host", err)
	}
	return normal, nil
}

func checkText(what, text string, most int) error {
	if len(text) > most || strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
		return fault.New(fault.Invalid, fmt.Sprintf("%s must be text of at most %d bytes", what, most))
	}
	return nil
}

// optionalKey is a key that may be left out.
func optionalKey(key []byte, what string) (*nostr.PubKey, error) {
	if len(key) == 0 {
		return nil, nil //nolint:nilnil // nobody is an answer
	}
	k, err := nostrpb.Fixed[nostr.PubKey](key, what)
	return &k, err
}

// keyOf is a key as messages have it, empty for none.
func keyOf(k *nostr.PubKey) []byte {
	if k == nil {
		return nil
	}
	return k[:]
}

// failed gives an error of the store its reason. Who asks may know every community.
func failed(err error) error {
	var host *store.HostError
	var many *store.TooManyError
	switch {
	case errors.Is(err, store.ErrNoCommunity):
		return fault.Wrap(fault.NotFound, "community not found", err)
	case errors.Is(err, store.ErrNoOwner):
		return fault.Wrap(fault.NotFound, "the community has no owner", err)
	case errors.Is(err, store.ErrNoMembers):
		return fault.Wrap(fault.Invalid, "no_members: nobody could use the community if it were closed: add an owner first", err)
	case errors.Is(err, store.ErrCommunityExists):
		return fault.Wrap(fault.Exists, "community already exists", err)
	case errors.Is(err, store.ErrOwnerConflict):
		return fault.Wrap(fault.Exists, "owner_conflict: somebody else owns the community", err)
	case errors.Is(err, store.ErrNotArchived):
		return fault.Wrap(fault.Exists, "not_archived: archive the community first", err)
	case errors.Is(err, store.ErrDeletionConflict):
		return fault.Wrap(fault.Exists, "deletion_conflict: the deletion has another request id, or the id is that of another deletion", err)
	case errors.As(err, &host) && host.Retired:
		return fault.Wrap(fault.Exists, "host_retired: "+host.Error(), err)
	case errors.As(err, &host):
		return fault.Wrap(fault.Exists, "host_taken: "+host.Error(), err)
	case errors.As(err, &many):
		return fault.Wrap(fault.Exists, "limit_reached: "+many.Error(), err)
	case errors.Is(err, store.ErrTooManyHosts):
		return fault.Wrap(fault.Invalid, fmt.Sprintf("a community has at most %d hosts", store.MaxHosts), err)
	case errors.Is(err, store.ErrPrimaryHost):
		return fault.Wrap(fault.Invalid, err.Error(), err)
	case errors.Is(err, store.ErrBanned):
		return fault.Wrap(fault.Invalid, "the key is banned: lift the ban first", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case store.IsTransient(err):
		return fault.Wrap(fault.Overloaded, "cannot change the directory at the moment, try again", err)
	}
	return err
}
