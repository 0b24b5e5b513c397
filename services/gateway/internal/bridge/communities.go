package bridge

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apiary-relay/apiary/pkg/fault"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

// Words of the status and stage fields.
const (
	statusCreated      = "created"
	statusExisted      = "existed"
	statusArchived     = "archived"
	statusUnarchived   = "unarchived"
	statusTransferred  = "transferred"
	statusAlreadyOwner = "already_owner"
	pending            = "pending"
)

// moment is a time in Unix seconds, nil for none.
func moment(t *timestamppb.Timestamp) *int64 {
	if t == nil {
		return nil
	}
	return new(t.GetSeconds())
}

// created is the answer to a creation.
type created struct {
	CommunityID    string   `json:"community_id"`
	Host           string   `json:"host"`
	Status         string   `json:"status"`
	Owner          string   `json:"owner_pubkey,omitempty"`
	MaxCommunities uint32   `json:"max_communities_per_owner"`
	Differences    []string `json:"differences,omitempty"`
}

// createCommunity makes a community, or, unless it is to be created only, has the one that the host has already owned by
// who is named.
func createCommunity(ctx context.Context, b *Bridge, _ *http.Request, body []byte) (any, error) {
	var asked struct {
		Host        string   `json:"host"`
		Aliases     []string `json:"aliases"`
		Owner       string   `json:"initial_owner_pubkey"`
		CreateOnly  bool     `json:"create_only"`
		Access      string   `json:"access"`
		Name        string   `json:"name"`
		Description string   `json:"description"`
	}
	if err := decode(body, &asked); err != nil {
		return nil, err
	}
	if err := b.mayHave(append([]string{asked.Host}, asked.Aliases...)...); err != nil {
		return nil, err
	}
	request := &ingestv1.CreateCommunityRequest{
		Host: asked.Host, Aliases: asked.Aliases, Name: asked.Name, Description: asked.Description,
		Existing: ingestv1.Existing_EXISTING_ROTATE_OWNER,
	}
	if asked.CreateOnly {
		if asked.Owner == "" {
			return nil, fault.New(fault.Invalid, "create_only needs initial_owner_pubkey")
		}
		request.Existing = ingestv1.Existing_EXISTING_REFUSE
	}
	var err error
	if asked.Owner != "" {
		if request.Owner, err = parseOwner(asked.Owner, "initial_owner_pubkey"); err != nil {
			return nil, err
		}
	}
	if request.Access, err = parseAccess(asked.Access, asked.Owner != ""); err != nil {
		return nil, err
	}
	resp, err := b.Directory.CreateCommunity(ctx, request)
	if err != nil {
		return nil, b.withLimit(ctx, err, request.GetOwner())
	}
	host, err := b.Directory.GetHost(ctx, &ingestv1.GetHostRequest{Host: asked.Host})
	if err != nil {
		return nil, err
	}
	answer := created{
		CommunityID: resp.GetUuid(), Host: host.GetHost(), Status: statusCreated, Owner: keyText(resp.GetOwner()),
		MaxCommunities: resp.GetMaxCommunitiesPerOwner(), Differences: resp.GetDifferences(),
	}
	if !resp.GetCreated() {
		answer.Status = statusExisted
	}
	return answer, nil
}

// parseAccess reads who may use a community: if nothing is said, its members where it has an owner who can make some.
func parseAccess(text string, owned bool) (ingestv1.Access, error) {
	switch {
	case text == "closed" && !owned:
		return 0, fault.New(fault.Invalid, "a closed community needs initial_owner_pubkey")
	case text == "closed", text == "" && owned:
		return ingestv1.Access_ACCESS_CLOSED, nil
	case text == "open", text == "":
		return ingestv1.Access_ACCESS_OPEN, nil
	}
	return 0, fault.New(fault.Invalid, "access must be open or closed")
}

// withLimit adds the limit to an error that says that an owner has reached it.
func (b *Bridge) withLimit(ctx context.Context, err error, owner []byte) error {
	known := fault.From(err)
	if known.Reason != fault.Exists || !strings.HasPrefix(known.Message, "limit_reached: ") {
		return err
	}
	owned, listErr := b.Directory.ListOwned(ctx, &ingestv1.ListOwnedRequest{Owner: owner})
	if listErr != nil {
		return err
	}
	return &problemError{known, problem{MaxCommunities: owned.GetMaxCommunitiesPerOwner()}}
}

// listOwned lists the communities of an owner.
func listOwned(ctx context.Context, b *Bridge, r *http.Request, _ []byte) (any, error) {
	owner, err := parseOwner(r.URL.Query().Get("owner_pubkey"), "owner_pubkey")
	if err != nil {
		return nil, err
	}
	resp, err := b.Directory.ListOwned(ctx, &ingestv1.ListOwnedRequest{Owner: owner})
	if err != nil {
		return nil, err
	}
	type entry struct {
		CommunityID string `json:"community_id"`
		Host        string `json:"host"`
		CreatedAt   *int64 `json:"created_at"`
		ArchivedAt  *int64 `json:"archived_at"`
	}
	entries := make([]entry, 0, len(resp.GetCommunities()))
	for _, c := range resp.GetCommunities() {
		entries = append(entries, entry{c.GetUuid(), c.GetHost(), moment(c.GetCreateTime()), moment(c.GetArchiveTime())})
	}
	return struct {
		Owner          string  `json:"owner_pubkey"`
		MaxCommunities uint32  `json:"max_communities_per_owner"`
		Communities    []entry `json:"communities"`
	}{keyText(owner), resp.GetMaxCommunitiesPerOwner(), entries}, nil
}

// availability tells whether a community can be created for a host.
func availability(ctx context.Context, b *Bridge, r *http.Request, _ []byte) (any, error) {
	asked := r.URL.Query().Get("host")
	resp, err := b.Directory.GetHost(ctx, &ingestv1.GetHostRequest{Host: asked})
	if err != nil {
		return nil, err
	}
	answer := struct {
		Host        string  `json:"host"`
		Normalized  string  `json:"normalized_host"`
		Available   bool    `json:"available"`
		CommunityID *string `json:"community_id"`
		Retired     bool    `json:"retired"`
	}{Host: asked, Normalized: resp.GetHost(), Available: resp.GetAvailable() && !b.isReserved(asked), Retired: resp.GetRetired()}
	if id := resp.GetUuid(); id != "" {
		answer.CommunityID = &id
	}
	return answer, nil
}

// archived is the answer to an archival, and to its undoing.
type archived struct {
	CommunityID string `json:"community_id"`
	Host        string `json:"host"`
	ArchivedAt  *int64 `json:"archived_at"`
	Status      string `json:"status"`
}

// owned is a community and its owner, as requests name them.
type owned struct {
	CommunityID string `json:"community_id"`
	Host        string `json:"host"`
	Owner       string `json:"owner_pubkey"`
}

// parse returns the community and its owner, who must be named.
func (o *owned) parse() (*ingestv1.CommunityRef, []byte, error) {
	if o.Owner == "" {
		return nil, nil, fault.New(fault.Invalid, "owner_pubkey is needed; to create a community that nobody owns again, with initial_owner_pubkey, gives it an owner")
	}
	owner, err := parseOwner(o.Owner, "owner_pubkey")
	return refOf(o.CommunityID, o.Host), owner, err
}

// archiveCommunity ends all use of a community. While gateways cannot be told the answer is an error, since sockets may be
// open for another half a minute; to ask again tells them again.
func archiveCommunity(ctx context.Context, b *Bridge, _ *http.Request, body []byte) (any, error) {
	var asked owned
	if err := decode(body, &asked); err != nil {
		return nil, err
	}
	ref, owner, err := asked.parse()
	if err != nil {
		return nil, err
	}
	resp, err := b.Directory.ArchiveCommunity(ctx, &ingestv1.ArchiveCommunityRequest{Community: ref, Owner: owner})
	if err != nil {
		return nil, err
	}
	done := archived{resp.GetUuid(), resp.GetHost(), moment(resp.GetArchiveTime()), statusArchived}
	if !resp.GetAnnounced() {
		return nil, &problemError{
			fault.New(fault.Overloaded, "the community is archived; open connections end within 30 seconds"),
			problem{pendingArchive: &pendingArchive{pending, done}},
		}
	}
	return done, nil
}

// unarchiveCommunity undoes archiveCommunity.
func unarchiveCommunity(ctx context.Context, b *Bridge, _ *http.Request, body []byte) (any, error) {
	var asked owned
	if err := decode(body, &asked); err != nil {
		return nil, err
	}
	ref, owner, err := asked.parse()
	if err != nil {
		return nil, err
	}
	resp, err := b.Directory.UnarchiveCommunity(ctx, &ingestv1.UnarchiveCommunityRequest{Community: ref, Owner: owner})
	if err != nil {
		return nil, err
	}
	return archived{resp.GetUuid(), resp.GetHost(), nil, statusUnarchived}, nil
}

// transferCommunity gives a community to another owner.
func transferCommunity(ctx context.Context, b *Bridge, _ *http.Request, body []byte) (any, error) {
	var asked struct {
		CommunityID string `json:"community_id"`
		Host        string `json:"host"`
		NewOwner    string `json:"new_owner_pubkey"`
		Expected    string `json:"expected_owner_pubkey"`
	}
	if err := decode(body, &asked); err != nil {
		return nil, err
	}
	to, err := parseOwner(asked.NewOwner, "new_owner_pubkey")
	if err != nil {
		return nil, err
	}
	from, err := parseOwner(asked.Expected, "expected_owner_pubkey")
	if err != nil {
		return nil, err
	}
	resp, err := b.Directory.TransferCommunity(ctx, &ingestv1.TransferCommunityRequest{
		Community: refOf(asked.CommunityID, asked.Host), NewOwner: to, ExpectedOwner: from,
	})
	if err != nil {
		return nil, b.withLimit(ctx, err, to)
	}
	answer := struct {
		CommunityID string `json:"community_id"`
		NewOwner    string `json:"new_owner_pubkey"`
		Status      string `json:"status"`
		Previous    string `json:"previous_owner,omitempty"`
	}{resp.GetUuid(), keyText(to), statusTransferred, keyText(resp.GetPreviousOwner())}
	if !resp.GetTransferred() {
		answer.Status = statusAlreadyOwner
	}
	return answer, nil
}

// stages are the words for how far a deletion is.
var stages = map[ingestv1.DeletionStage]string{
	ingestv1.DeletionStage_DELETION_STAGE_REQUESTED: "requested",
	ingestv1.DeletionStage_DELETION_STAGE_DRAINING:  "draining",
	ingestv1.DeletionStage_DELETION_STAGE_DELETED:   "deleted",
}

// deleteCommunity has everything of an archived community removed, or tells how far that is.
func deleteCommunity(ctx context.Context, b *Bridge, _ *http.Request, body []byte) (any, error) {
	var asked struct {
		owned
		RequestID string `json:"request_id"`
	}
	if err := decode(body, &asked); err != nil {
		return nil, err
	}
	ref, owner, err := asked.parse()
	if err != nil {
		return nil, err
	}
	resp, err := b.Directory.DeleteCommunity(ctx, &ingestv1.DeleteCommunityRequest{Community: ref, Owner: owner, RequestId: asked.RequestID})
	if err != nil {
		return nil, err
	}
	return struct {
		CommunityID string `json:"community_id"`
		Host        string `json:"host"`
		RequestID   string `json:"request_id"`
		Stage       string `json:"stage"`
		RequestedAt *int64 `json:"requested_at"`
		Removed     uint64 `json:"removed"`
	}{resp.GetUuid(), resp.GetHost(), asked.RequestID, stages[resp.GetStage()], moment(resp.GetRequestTime()), resp.GetRemoved()}, nil
}

// alias is a further host, as requests name it.
type alias struct {
	CommunityID string `json:"community_id"`
	Host        string `json:"host"`
	Alias       string `json:"alias"`
}

// aliasDone is the answer to a request about an alias.
type aliasDone struct {
	Alias  string `json:"alias"`
	Status string `json:"status"`
}

// addAlias gives a community another host.
func addAlias(ctx context.Context, b *Bridge, _ *http.Request, body []byte) (any, error) {
	var asked alias
	if err := decode(body, &asked); err != nil {
		return nil, err
	}
	if err := b.mayHave(asked.Alias); err != nil {
		return nil, err
	}
	resp, err := b.Directory.PutHost(ctx, &ingestv1.PutHostRequest{Community: refOf(asked.CommunityID, asked.Host), Alias: asked.Alias})
	if err != nil {
		return nil, err
	}
	status := "added"
	if !resp.GetAdded() {
		status = statusExisted
	}
	return aliasDone{asked.Alias, status}, nil
}

// removeAlias takes a host from its community.
func removeAlias(ctx context.Context, b *Bridge, _ *http.Request, body []byte) (any, error) {
	var asked alias
	if err := decode(body, &asked); err != nil {
		return nil, err
	}
	if _, err := b.Directory.RemoveHost(ctx, &ingestv1.RemoveHostRequest{
		Community: refOf(asked.CommunityID, asked.Host), Alias: asked.Alias,
	}); err != nil {
		return nil, err
	}
	return aliasDone{asked.Alias, "removed"}, nil
}

// releaseHost lets a host go that a deleted community had.
func releaseHost(ctx context.Context, b *Bridge, _ *http.Request, body []byte) (any, error) {
	var asked struct {
		Host string `json:"host"`
	}
	if err := decode(body, &asked); err != nil {
		return nil, err
	}
	resp, err := b.Directory.ReleaseHost(ctx, &ingestv1.ReleaseHostRequest{Host: asked.Host})
	if err != nil {
		return nil, err
	}
	status := "released"
	if !resp.GetReleased() {
		status = "free"
	}
	return struct {
		Host   string `json:"host"`
		Status string `json:"status"`
	}{asked.Host, status}, nil
}
