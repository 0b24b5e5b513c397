package edge

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

// Info is what the NIP-11 document says besides the community's own words. The limits are the ones that
// are enforced; a limit that is off (0) is not mentioned.
type Info struct {
	// Software is the URL of the project, Version the version that runs.
	Software, Version string
	// PubKey is the operator's public key in hexadecimal, for communities without an owner; Self is the
	// relay's own. Both may be empty.
	PubKey, Self string
	// Wire are the limits on frames.
	Wire wire.Limits
	// MaxSubs is how many subscriptions a connection may have open.
	MaxSubs int
	// MaxLimit bounds a filter's limit; DefaultLimit is the limit of a filter without one.
	MaxLimit, DefaultLimit int
	// CreatedAtWindow is how far an event's created_at may be from now.
	CreatedAtWindow time.Duration
}

// document is the NIP-11 relay information document. There is no retention in it, because nothing is
// dropped by age or number.
type document struct {
	Name          string     `json:"name"`
	Description   string     `json:"description"`
	Icon          string     `json:"icon,omitempty"`
	PubKey        string     `json:"pubkey,omitempty"`
	Self          string     `json:"self,omitempty"`
	SupportedNIPs []int      `json:"supported_nips"`
	Extensions    []string   `json:"supported_extensions"`
	Software      string     `json:"software"`
	Version       string     `json:"version"`
	Limitation    limitation `json:"limitation"`
}

type limitation struct {
	MaxMessageLength    int   `json:"max_message_length,omitempty"`
	MaxSubscriptions    int   `json:"max_subscriptions,omitempty"`
	MaxFilters          int   `json:"max_filters,omitempty"`
	MaxLimit            int   `json:"max_limit,omitempty"`
	DefaultLimit        int   `json:"default_limit,omitempty"`
	MaxSubIDLength      int   `json:"max_subid_length,omitempty"`
	MaxEventTags        int   `json:"max_event_tags,omitempty"`
	MaxContentLength    int   `json:"max_content_length,omitempty"`
	MinPowDifficulty    int   `json:"min_pow_difficulty"`
	AuthRequired        bool  `json:"auth_required"`
	PaymentRequired     bool  `json:"payment_required"`
	RestrictedWrites    bool  `json:"restricted_writes"`
	CreatedAtLowerLimit int64 `json:"created_at_lower_limit,omitempty"`
	CreatedAtUpperLimit int64 `json:"created_at_upper_limit,omitempty"`
	// DueDeliveryMode and MaxNotBeforeDelta are about reminders (NIP-ER): they are pushed when they are due, which may be so
	// many seconds ahead.
	DueDeliveryMode   string `json:"due_delivery_mode"`
	MaxNotBeforeDelta int64  `json:"max_not_before_delta"`
}

// render returns the NIP-11 document of a community.
func (i *Info) render(c *Community) ([]byte, error) {
	window := int64(i.CreatedAtWindow / time.Second)
	return json.Marshal(document{
		Name:          c.Name,
		Description:   c.Description,
		Icon:          c.Icon,
		PubKey:        cmp.Or(c.Owner, i.PubKey),
		Self:          i.Self,
		SupportedNIPs: i.nips(),
		Extensions:    supportedExtensions,
		Software:      i.Software,
		Version:       i.Version,
		Limitation: limitation{
			MaxMessageLength:    i.Wire.Frame,
			MaxSubscriptions:    i.MaxSubs,
			MaxFilters:          i.Wire.Filters,
			MaxLimit:            i.MaxLimit,
			DefaultLimit:        i.DefaultLimit,
			MaxSubIDLength:      i.Wire.SubID,
			MaxEventTags:        i.Wire.Tags,
			MaxContentLength:    i.Wire.Content,
			MinPowDifficulty:    c.MinPow,
			AuthRequired:        true,
			RestrictedWrites:    c.Closed || c.MinPow > 0,
			CreatedAtLowerLimit: window,
			CreatedAtUpperLimit: window,
			DueDeliveryMode:     "push",
			MaxNotBeforeDelta:   int64(nostr.MaxReminderDelay / time.Second),
		},
	})
}

// nips are the NIPs that are advertised: channels and membership (29, 43) only where the relay can sign who is a member.
func (i *Info) nips() []int {
	if i.Self != "" {
		return supportedNIPs
	}
	return slices.DeleteFunc(slices.Clone(supportedNIPs), func(n int) bool { return n == 29 || n == 43 })
}

// etag returns the entity tag of a document.
func etag(doc []byte) string {
	sum := sha256.Sum256(doc)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// matchesTag reports whether an If-None-Match header has a tag, compared weakly (RFC 9110). Our tags hold
// no comma.
func matchesTag(header []string, tag string) bool {
	return slices.ContainsFunc(strings.Split(strings.Join(header, ","), ","), func(one string) bool {
		one = strings.TrimSpace(one)
		return one == "*" || strings.TrimPrefix(one, "W/") == tag
	})
}
