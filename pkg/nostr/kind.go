package nostr

// Kind is an event kind, 0 to 65535.
type Kind uint16

// The kinds that are known by name. What holds for each of them is in the table of package kind.
const (
	KindMetadata                 Kind = 0     // NIP-01 user metadata
	KindText                     Kind = 1     // NIP-01 text note
	KindContacts                 Kind = 3     // NIP-02 follow list
	KindDirectMessage            Kind = 4     // NIP-04 encrypted direct message
	KindDeletion                 Kind = 5     // NIP-09 deletion request
	KindRepost                   Kind = 6     // NIP-18 repost of a text note
	KindReaction                 Kind = 7     // NIP-25 reaction
	KindChat                     Kind = 9     // NIP-C7 chat message, in a channel
	KindGenericRepost            Kind = 16    // NIP-18 repost of another kind
	KindPublicChatMetadata       Kind = 41    // NIP-28 metadata of a public chat
	KindVanish                   Kind = 62    // NIP-62 request to vanish
	KindGiftWrap                 Kind = 1059  // NIP-59 gift wrap, signed by a throw-away key
	KindFileMetadata             Kind = 1063  // NIP-94 file metadata
	KindGitPatch                 Kind = 1617  // NIP-34 patch
	KindGitPullRequest           Kind = 1618  // NIP-34 pull request
	KindGitPullRequestUpdate     Kind = 1619  // NIP-34 update of a pull request
	KindGitIssue                 Kind = 1621  // NIP-34 issue
	KindGitStatusOpen            Kind = 1630  // NIP-34 status: open
	KindGitStatusMerged          Kind = 1631  // NIP-34 status: merged or resolved
	KindGitStatusClosed          Kind = 1632  // NIP-34 status: closed
	KindGitStatusDraft           Kind = 1633  // NIP-34 status: draft
	KindReport                   Kind = 1984  // NIP-56 report
	KindRelayMemberAdded         Kind = 8000  // NIP-43 member added, signed by the relay
	KindRelayMemberRemoved       Kind = 8001  // NIP-43 member removed, signed by the relay
	KindIdentityArchived         Kind = 8002  // NIP-IA identity archived, signed by the relay
	KindIdentityUnarchived       Kind = 8003  // NIP-IA identity unarchived, signed by the relay
	KindPutUser                  Kind = 9000  // NIP-29 add a member or set its roles
	KindRemoveUser               Kind = 9001  // NIP-29 remove a member
	KindEditMetadata             Kind = 9002  // NIP-29 edit a channel
	KindDeleteEvent              Kind = 9005  // NIP-29 delete an event of a channel
	KindCreateGroup              Kind = 9007  // NIP-29 create a channel
	KindDeleteGroup              Kind = 9008  // NIP-29 delete a channel
	KindCreateInvite             Kind = 9009  // NIP-29 create an invite code
	KindUpdatePinList            Kind = 9010  // NIP-29 pin events in a channel
	KindJoinRequest              Kind = 9021  // NIP-29 ask to join
	KindLeaveRequest             Kind = 9022  // NIP-29 leave
	KindRelayAddMember           Kind = 9030  // add a member to the community
	KindRelayRemoveMember        Kind = 9031  // remove a member from the community
	KindRelayChangeRole          Kind = 9032  // change a member's role in the community
	KindRelaySetProfile          Kind = 9033  // set the community's icon and display settings
	KindIdentityArchiveRequest   Kind = 9035  // NIP-IA ask for an identity to be archived
	KindIdentityUnarchiveRequest Kind = 9036  // NIP-IA ask for an identity to be unarchived
	KindBan                      Kind = 9040  // ban a key from the community
	KindUnban                    Kind = 9041  // lift a ban
	KindTimeout                  Kind = 9042  // silence a key for a time
	KindUntimeout                Kind = 9043  // lift a timeout
	KindResolveReport            Kind = 9044  // resolve or dismiss a report
	KindMuteList                 Kind = 10000 // NIP-51 mute list
	KindPinList                  Kind = 10001 // NIP-51 pinned notes
	KindRelayList                Kind = 10002 // NIP-65 relay list
	KindBookmarkList             Kind = 10003 // NIP-51 bookmarks
	KindEmojiList                Kind = 10030 // NIP-51 preferred emojis
	KindAgentProfile             Kind = 10100 // an agent's profile: who may add it to channels
	KindRelayMembers             Kind = 13534 // NIP-43 list of members, signed by the relay
	KindArchivedIdentities       Kind = 13535 // NIP-IA list of archived identities, signed by the relay
	KindPresence                 Kind = 20001 // presence of a user
	KindTyping                   Kind = 20002 // somebody is typing
	KindLiveGiftWrap             Kind = 21059 // NIP-59 gift wrap that is not stored
	KindAuth                     Kind = 22242 // NIP-42 client authentication
	KindPairing                  Kind = 24134 // NIP-AB pairing of devices
	KindAgentFrame               Kind = 24200 // NIP-AO encrypted telemetry or control of an agent
	KindBlossomAuth              Kind = 24242 // Blossom authorization (BUD-01)
	KindIdentityBinding          Kind = 24243 // proof that a key belongs to an identity
	KindHuddleReaction           Kind = 24810 // emoji in a huddle
	KindHTTPAuth                 Kind = 27235 // NIP-98 HTTP authentication
	KindRelayJoinRequest         Kind = 28934 // NIP-43 join the relay with an invite code
	KindRelayInvite              Kind = 28935 // NIP-43 invite code, made by the relay on request
	KindRelayLeaveRequest        Kind = 28936 // NIP-43 leave the relay
	KindFollowSet                Kind = 30000 // NIP-51 follow set
	KindBookmarkSet              Kind = 30003 // NIP-51 bookmark set
	KindArticle                  Kind = 30023 // NIP-23 long-form article
	KindEmojiSet                 Kind = 30030 // NIP-51 emoji set
	KindReadState                Kind = 30078 // NIP-78 application data, as of NIP-RS read positions
	KindAgentMemory              Kind = 30174 // NIP-AE an agent's memory (engram)
	KindPersona                  Kind = 30175 // persona of an agent
	KindTeam                     Kind = 30176 // team of agents
	KindManagedAgent             Kind = 30177 // public side of a managed agent
	KindTeamCatalog              Kind = 30178 // team of agents with its members, to be shared
	KindPrivateManagedAgent      Kind = 30179 // private side of a managed agent
	KindReminder                 Kind = 30300 // NIP-ER reminder of its author's
	KindUserStatus               Kind = 30315 // NIP-38 user status
	KindPushLease                Kind = 30350 // NIP-PL lease of push notifications
	KindGitRepository            Kind = 30617 // NIP-34 announcement of a repository
	KindGitState                 Kind = 30618 // NIP-34 state of a repository
	KindWorkflow                 Kind = 30620 // definition of a workflow
	KindProject                  Kind = 30621 // NIP-MP project of several repositories
	KindHiddenConversations      Kind = 30622 // conversations that a user has hidden, signed by the relay
	KindRelayRole                Kind = 33534 // NIP-43 what a role of members is, signed by the relay
	KindGroupMetadata            Kind = 39000 // NIP-29 channel metadata, signed by the relay
	KindGroupAdmins              Kind = 39001 // NIP-29 channel admins, signed by the relay
	KindGroupMembers             Kind = 39002 // NIP-29 channel members, signed by the relay
	KindGroupRoles               Kind = 39003 // NIP-29 channel roles, signed by the relay
	KindGroupCall                Kind = 39004 // NIP-29 who is in a channel's live call, signed by the relay
	KindThreadSummary            Kind = 39005 // summary of a thread, signed by the relay
	KindWindowBounds             Kind = 39006 // bounds of a page of a channel, signed by the relay
	KindThreadBounds             Kind = 39007 // bounds of a page of a thread, signed by the relay
	KindStreamMessageV2          Kind = 40002 // channel message with rich content
	KindMessageEdit              Kind = 40003 // edit of a channel message
	KindMessagePin               Kind = 40004 // pinned channel message
	KindMessageBookmark          Kind = 40005 // bookmarked channel message
	KindScheduledMessage         Kind = 40006 // channel message to be sent later
	KindMessageReminder          Kind = 40007 // reminder of a channel message
	KindMessageDiff              Kind = 40008 // channel message that is a diff
	KindSystemMessage            Kind = 40099 // notice in a channel, signed by the relay
	KindCanvas                   Kind = 40100 // document that a channel shares
	KindChannelSummary           Kind = 40901 // summary of a channel, signed by the relay
	KindPresenceSnapshot         Kind = 40902 // who is present, signed by the relay
	KindConversationCreated      Kind = 41001 // reserved: conversation created
	KindOpenConversation         Kind = 41010 // open a conversation (direct messages)
	KindAddToConversation        Kind = 41011 // open a conversation with more members
	KindHideConversation         Kind = 41012 // hide a conversation
	KindFeedback                 Kind = 42000 // feedback to who runs the relay
	KindJobRequest               Kind = 43001 // job for an agent: request
	KindJobAccepted              Kind = 43002 // job for an agent: accepted
	KindJobProgress              Kind = 43003 // job for an agent: progress
	KindJobResult                Kind = 43004 // job for an agent: result
	KindJobCancel                Kind = 43005 // job for an agent: cancelled
	KindJobError                 Kind = 43006 // job for an agent: failed
	KindMemberAdded              Kind = 44100 // notice to who was added to a channel, signed by the relay
	KindMemberRemoved            Kind = 44101 // notice to who was removed from a channel, signed by the relay
	KindTurnMetric               Kind = 44200 // NIP-AM what an agent's turn used, for its owner
	KindForumPost                Kind = 45001 // forum post of a channel
	KindForumVote                Kind = 45002 // vote on a forum post or comment
	KindForumComment             Kind = 45003 // forum comment of a channel
	KindWorkflowTriggered        Kind = 46001 // a workflow was triggered, signed by the relay
	KindWorkflowStepStarted      Kind = 46002 // a step began, signed by the relay
	KindWorkflowStepCompleted    Kind = 46003 // a step ended, signed by the relay
	KindWorkflowStepFailed       Kind = 46004 // a step failed, signed by the relay
	KindWorkflowCompleted        Kind = 46005 // a run ended, signed by the relay
	KindWorkflowFailed           Kind = 46006 // a run failed, signed by the relay
	KindWorkflowCancelled        Kind = 46007 // a run was cancelled, signed by the relay
	KindApprovalRequested        Kind = 46010 // a run waits for an approval, signed by the relay
	KindApprovalGranted          Kind = 46011 // an approval was granted, signed by the relay
	KindApprovalDenied           Kind = 46012 // an approval was denied, signed by the relay
	KindTriggerWorkflow          Kind = 46020 // trigger a workflow
	KindGrantApproval            Kind = 46030 // grant an approval
	KindDenyApproval             Kind = 46031 // deny an approval
	KindAuditEntry               Kind = 48001 // reserved: entry of the audit log
	KindHuddleStarted            Kind = 48100 // huddle started
	KindHuddleJoined             Kind = 48101 // somebody joined a huddle
	KindHuddleLeft               Kind = 48102 // somebody left a huddle
	KindHuddleEnded              Kind = 48103 // huddle ended
	KindHuddleGuidelines         Kind = 48106 // guidelines of a huddle
	KindMediaUpload              Kind = 49001 // reserved: upload in the audit log
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
