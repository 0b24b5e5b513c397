package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// Info is a relay's NIP-11 document. Fields that are missing or of another type are nil; Raw has them as
// they are.
type Info struct {
	// Header is the header of the answer.
	Header http.Header
	// Raw is the document's object.
	Raw map[string]json.RawMessage
	// NIPs are the numbers in supported_nips.
	NIPs []int
	// Self is the relay's own public key, empty if it has none.
	Self string
	// Limitation is what the document says of limits.
	Limitation Limitation
}

// Limitation is the limitation object of NIP-11; nil is not said.
type Limitation struct {
	MaxMessageLength    *int64 `json:"max_message_length"`
	MaxSubscriptions    *int64 `json:"max_subscriptions"`
	MaxFilters          *int64 `json:"max_filters"`
	MaxLimit            *int64 `json:"max_limit"`
	DefaultLimit        *int64 `json:"default_limit"`
	MaxSubIDLength      *int64 `json:"max_subid_length"`
	MaxEventTags        *int64 `json:"max_event_tags"`
	MaxContentLength    *int64 `json:"max_content_length"`
	MinPowDifficulty    *int64 `json:"min_pow_difficulty"`
	CreatedAtLowerLimit *int64 `json:"created_at_lower_limit"`
	CreatedAtUpperLimit *int64 `json:"created_at_upper_limit"`
	AuthRequired        *bool  `json:"auth_required"`
	PaymentRequired     *bool  `json:"payment_required"`
	RestrictedWrites    *bool  `json:"restricted_writes"`
}

// Claims reports whether the document lists the NIP.
func (i *Info) Claims(nip int) bool { return i != nil && slices.Contains(i.NIPs, nip) }

// InfoType is the media type with which the document is asked for.
const InfoType = "application/nostr+json"

// HTTPURL returns where the relay at a ws or wss URL answers HTTP.
func HTTPURL(url string) string {
	if rest, ok := strings.CutPrefix(url, "ws"); ok {
		return "http" + rest
	}
	return url
}

// maxInfo bounds the document.
const maxInfo = 1 << 20

// FetchInfo asks for the document; it returns nil without an error if the relay has none.
func FetchInfo(ctx context.Context, client *http.Client, url string) (*Info, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, HTTPURL(url), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", InfoType)
	req.Header.Set("Origin", "https://conformance.example")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxInfo))
	if err != nil {
		return nil, fmt.Errorf("read the NIP-11 document: %w", err)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || strings.HasPrefix(media, "text/html") {
		return nil, nil //nolint:nilnil // documented: no document is not an error
	}
	info := &Info{Header: resp.Header}
	if err := json.Unmarshal(body, &info.Raw); err != nil || info.Raw == nil {
		return nil, nil //nolint:nilnil // what is no JSON object is no document
	}
	info.read()
	return info, nil
}

// read sets the typed fields from Raw, each by itself so that one of a wrong type hides no other.
func (i *Info) read() {
	var nips []json.RawMessage
	_ = json.Unmarshal(i.Raw["supported_nips"], &nips)
	for _, raw := range nips {
		var n int
		if json.Unmarshal(raw, &n) == nil {
			i.NIPs = append(i.NIPs, n)
		}
	}
	_ = json.Unmarshal(i.Raw["self"], &i.Self)
	var limits map[string]json.RawMessage
	_ = json.Unmarshal(i.Raw["limitation"], &limits)
	for name, raw := range limits {
		one, err := json.Marshal(map[string]json.RawMessage{name: raw})
		if err == nil {
			_ = json.Unmarshal(one, &i.Limitation)
		}
	}
}
