package nostr

// Kind is an event kind, 0 to 65535.
type Kind uint16

// Kinds that code of more than one package names. What a community allows is policy, not a matter of
// this list.
const (
	KindMetadata        Kind = 0     // NIP-01 user metadata
	KindText            Kind = 1     // NIP-01 text note
	KindContacts        Kind = 3     // NIP-02 follow list
	KindDeletion        Kind = 5     // NIP-09 deletion request
	KindRepost          Kind = 6     // NIP-18 repost of a text note
	KindReaction        Kind = 7     // NIP-25 reaction
	KindChat            Kind = 9     // NIP-C7 chat message, in a channel
	KindGenericRepost   Kind = 16    // NIP-18 repost of another kind
	KindVanish          Kind = 62    // NIP-62 request to vanish
	KindGiftWrap        Kind = 1059  // NIP-59 gift wrap, signed by a throw-away key
	KindReport          Kind = 1984  // NIP-56 report
	KindPutUser         Kind = 9000  // NIP-29 add a member or set its roles
	KindRemoveUser      Kind = 9001  // NIP-29 remove a member
	KindEditMetadata    Kind = 9002  // NIP-29 edit a channel
	KindDeleteEvent     Kind = 9005  // NIP-29 delete an event of a channel
	KindCreateGroup     Kind = 9007  // NIP-29 create a channel
	KindDeleteGroup     Kind = 9008  // NIP-29 delete a channel
	KindCreateInvite    Kind = 9009  // NIP-29 create an invite code
	KindJoinRequest     Kind = 9021  // NIP-29 ask to join
	KindLeaveRequest    Kind = 9022  // NIP-29 leave
	KindLiveGiftWrap    Kind = 21059 // NIP-59 gift wrap that is not stored
	KindAuth            Kind = 22242 // NIP-42 client authentication
	KindHTTPAuth        Kind = 27235 // NIP-98 HTTP authentication
	KindArticle         Kind = 30023 // NIP-23 long-form article
	KindGroupMetadata   Kind = 39000 // NIP-29 channel metadata, signed by the relay
	KindGroupAdmins     Kind = 39001 // NIP-29 channel admins, signed by the relay
	KindGroupMembers    Kind = 39002 // NIP-29 channel members, signed by the relay
	KindGroupRoles      Kind = 39003 // NIP-29 channel roles, signed by the relay
	KindStreamMessageV2 Kind = 40002 // channel message with rich content
	KindForumPost       Kind = 45001 // forum post of a channel
	KindForumComment    Kind = 45003 // forum comment of a channel
)

// IsGiftWrap reports whether events of the kind are signed by a throw-away key, and their sender is who
// submits them (NIP-59).
func (k Kind) IsGiftWrap() bool { return k == KindGiftWrap || k == KindLiveGiftWrap }

// IsReplaceable reports whether only the newest event per author and kind counts: 0, 3 and
// 10000–19999 (NIP-01).
func (k Kind) IsReplaceable() bool {
	return k == KindMetadata || k == KindContacts || (k >= 10000 && k < 20000)
}

// IsEphemeral reports whether events of the kind are passed on but never stored: 20000–29999 (NIP-01).
func (k Kind) IsEphemeral() bool { return k >= 20000 && k < 30000 }

// IsAddressable reports whether only the newest event per author, kind and d tag counts: 30000–39999
// (NIP-01).
func (k Kind) IsAddressable() bool { return k >= 30000 && k < 40000 }

// IsRegular reports whether every event of the kind is kept for itself: neither replaceable nor
// ephemeral nor addressable.
func (k Kind) IsRegular() bool {
	return !k.IsReplaceable() && !k.IsEphemeral() && !k.IsAddressable()
}
