package edge

import (
	"encoding/json"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

// supportedNIPs are the NIPs that this code implements, together with ingest, fan-out and search.
// Whoever makes another one work adds it here.
var supportedNIPs = []int{1, 9, 11, 40, 42, 45}

// Info is what the NIP-11 document says besides the community's own words. The limits are the ones that
// are enforced; a limit that is off (0) is not mentioned.
type Info struct {
	// Software is the URL of the project, Version the version that runs.
	Software, Version string
	// PubKey is the operator's public key in hexadecimal, may be empty.
	PubKey string
	// Wire are the limits on frames.
	Wire wire.Limits
	// MaxSubs is how many subscriptions a connection may have open.
	MaxSubs int
	// MaxLimit bounds a filter's limit; DefaultLimit is the limit of a filter without one.
	MaxLimit, DefaultLimit int
	// CreatedAtWindow is how far an event's created_at may be from now.
	CreatedAtWindow time.Duration
}

// document is the NIP-11 relay information document.
type document struct {
	Name          string     `json:"name"`
	Description   string     `json:"description"`
	Icon          string     `json:"icon,omitempty"`
	PubKey        string     `json:"pubkey,omitempty"`
	SupportedNIPs []int      `json:"supported_nips"`
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
}

// render returns the NIP-11 document of a community.
func (i *Info) render(c *Community) ([]byte, error) {
	window := int64(i.CreatedAtWindow / time.Second)
	return json.Marshal(document{
		Name:          c.Name,
		Description:   c.Description,
		Icon:          c.Icon,
		PubKey:        i.PubKey,
		SupportedNIPs: supportedNIPs,
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
			AuthRequired:        true,
			RestrictedWrites:    c.Closed, // in an open one whoever authenticates may write
			CreatedAtLowerLimit: window,
			CreatedAtUpperLimit: window,
		},
	})
}
