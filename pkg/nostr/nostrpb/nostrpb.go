// Package nostrpb converts between nostr filters and the cluster's protobuf messages, so that package
// nostr need not know protobuf. It owns no state, starts no goroutines and is safe for concurrent use.
package nostrpb

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/apiary-relay/apiary/pkg/nostr"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
)

// ErrBadFilter is wrapped by every error of FilterFromProto.
var ErrBadFilter = errors.New("malformed filter message")

// MaxSearch is the longest NIP-50 query that a message carries, in bytes.
const MaxSearch = 256

// FilterToProto converts a filter. The message shares no memory with f. What the
// message cannot say is left out: the caller drops a filter with MatchesNothing before. A limit above the uint32 range becomes its largest value.
func FilterToProto(f *nostr.Filter) *commonv1.Filter {
	m := &commonv1.Filter{Since: clone(f.Since), Until: clone(f.Until), Search: f.Search}
	for _, id := range f.IDs {
		m.Ids = append(m.Ids, id[:])
	}
	for _, p := range f.Authors {
		m.Authors = append(m.Authors, p[:])
	}
	for _, k := range f.Kinds {
		m.Kinds = append(m.Kinds, uint32(k))
	}
	for _, c := range f.Tags {
		values := make([][]byte, len(c.Values))
		for i, v := range c.Values {
			values[i] = []byte(v)
		}
		m.Tags = append(m.Tags, &commonv1.TagCondition{Name: string([]byte{c.Name}), Values: values})
	}
	if f.Limit != nil {
		limit := uint32(min(max(int64(*f.Limit), 0), math.MaxUint32))
		m.Limit = &limit
	}
	return m
}

// FilterFromProto converts a message of another service. It never trusts it: keys of the wrong length,
// kinds out of range, names that are no letter, a letter twice, a condition without values, values that
// are not UTF-8 and a search longer than MaxSearch are errors that wrap ErrBadFilter. The filter shares no memory with m.
func FilterFromProto(m *commonv1.Filter) (*nostr.Filter, error) {
	if m == nil {
		return nil, fmt.Errorf("%w: missing", ErrBadFilter)
	}
	if len(m.GetSearch()) > MaxSearch {
		return nil, fmt.Errorf("%w: search of %d bytes", ErrBadFilter, len(m.GetSearch()))
	}
	f := &nostr.Filter{Since: clone(m.Since), Until: clone(m.Until), Search: m.GetSearch()}
	for _, b := range m.GetIds() {
		if len(b) != len(nostr.ID{}) {
			return nil, fmt.Errorf("%w: id of %d bytes", ErrBadFilter, len(b))
		}
		f.IDs = append(f.IDs, nostr.ID(b))
	}
	for _, b := range m.GetAuthors() {
		if len(b) != len(nostr.PubKey{}) {
			return nil, fmt.Errorf("%w: author of %d bytes", ErrBadFilter, len(b))
		}
		f.Authors = append(f.Authors, nostr.PubKey(b))
	}
	for _, k := range m.GetKinds() {
		if k > math.MaxUint16 {
			return nil, fmt.Errorf("%w: kind %d", ErrBadFilter, k)
		}
		f.Kinds = append(f.Kinds, nostr.Kind(k))
	}
	for _, c := range m.GetTags() {
		if err := addCondition(f, c); err != nil {
			return nil, err
		}
	}
	if m.Limit != nil {
		limit := int(min(m.GetLimit(), math.MaxInt32))
		f.Limit = &limit
	}
	return f, nil
}

func addCondition(f *nostr.Filter, c *commonv1.TagCondition) error {
	name := c.GetName()
	if !nostr.IsIndexed(name) {
		return fmt.Errorf("%w: tag name %q", ErrBadFilter, name)
	}
	if _, twice := f.Tag(name[0]); twice {
		return fmt.Errorf("%w: tag %q twice", ErrBadFilter, name)
	}
	if len(c.GetValues()) == 0 {
		return fmt.Errorf("%w: tag %q without values", ErrBadFilter, name)
	}
	values := make([]string, len(c.GetValues()))
	for i, v := range c.GetValues() {
		if !utf8.Valid(v) {
			return fmt.Errorf("%w: value of tag %q is not UTF-8", ErrBadFilter, name)
		}
		values[i] = string(v)
	}
	f.Tags = append(f.Tags, nostr.TagCondition{Name: name[0], Values: values})
	return nil
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
