package edge

import "slices"

// nips are the NIPs that the relay keeps, this code together with ingest, fan-out and search, and what of
// each. Client-side NIPs are not among them, nor is what is kept in part. Whoever makes another one
// work adds it here, and to services/docs/nips.md, which says where it is tested.
var nips = map[int]string{
	1:  "events, filters, kinds",
	9:  "deletion",
	11: "relay information",
	13: "proof of work",
	29: "channels; only where the relay has a key",
	40: "expiration",
	42: "authentication",
	43: "members, invites, requests to join and to leave; only where the relay has a key",
	45: "counts, with HyperLogLog",
	50: "search",
	56: "reports, listed for moderators",
	59: "gift wraps go to their parties",
	62: "requests to vanish",
	70: "protected events",
	86: "management",
	98: "HTTP authentication",
}

// supportedExtensions are drafts without a number that the relay keeps: reminders (NIP-ER).
var supportedExtensions = []string{"nip-er"}

// supportedNIPs are the numbers of nips in order, as NIP-11 has them.
var supportedNIPs = numbers()

func numbers() []int {
	all := make([]int, 0, len(nips))
	for n := range nips {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}
