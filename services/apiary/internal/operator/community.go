package operator

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

func byHost(host string) *ingestv1.CommunityRef {
	return &ingestv1.CommunityRef{By: &ingestv1.CommunityRef_Host{Host: host}}
}

// Archive has a community served to nobody until Unarchive.
func (d *Directory) Archive(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := d.client.ArchiveCommunity(ctx, &ingestv1.ArchiveCommunityRequest{Community: byHost(host)})
	if err != nil {
		return explainWhole("archive "+host, err)
	}
	host = cmp.Or(response.GetHost(), canonical(host))
	since := response.GetArchiveTime().AsTime().UTC().Format(time.RFC3339)
	if !response.GetAnnounced() {
		return d.say("%s is archived since %s; NATS cannot be reached, so open connections end within 30 seconds", host, since)
	}
	return d.say("%s is archived since %s", host, since)
}

// Unarchive has a community served again.
func (d *Directory) Unarchive(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := d.client.UnarchiveCommunity(ctx, &ingestv1.UnarchiveCommunityRequest{Community: byHost(host)})
	if err != nil {
		return explainWhole("unarchive "+host, err)
	}
	return d.say("%s is served again, %s", cmp.Or(response.GetHost(), canonical(host)), soon)
}

// Transfer gives a community to another owner. from may be empty: whoever has owned it longest, or nobody.
func (d *Directory) Transfer(ctx context.Context, host, to, from string) error {
	request := &ingestv1.TransferCommunityRequest{Community: byHost(host)}
	var err error
	if request.NewOwner, err = parsePubKey(to); err != nil {
		return err
	}
	if from != "" {
		if request.ExpectedOwner, err = parsePubKey(from); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := d.client.TransferCommunity(ctx, request)
	switch {
	case err != nil:
		return explainWhole("transfer "+host, err)
	case !response.GetTransferred():
		return d.say("%x owns %s already; nothing was changed", request.GetNewOwner(), canonical(host))
	case len(response.GetPreviousOwner()) == 0:
		return d.say("%x owns %s now; nobody did before", request.GetNewOwner(), canonical(host))
	}
	return d.say("%x owns %s now; %x is a member", request.GetNewOwner(), canonical(host), response.GetPreviousOwner())
}

// Delete has everything of an archived community removed, or says how far that is: requestID names the deletion.
func (d *Directory) Delete(ctx context.Context, host, owner, requestID string) error {
	key, err := parsePubKey(owner)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := d.client.DeleteCommunity(ctx, &ingestv1.DeleteCommunityRequest{Community: byHost(host), Owner: key, RequestId: requestID})
	if err != nil {
		return explainWhole("delete "+host, err)
	}
	switch response.GetStage() {
	case ingestv1.DeletionStage_DELETION_STAGE_DELETED:
		return d.say("%s is deleted (%d rows); its hosts stay taken until they are released", canonical(host), response.GetRemoved())
	case ingestv1.DeletionStage_DELETION_STAGE_DRAINING:
		return d.say("%s is being deleted (%d rows so far)", canonical(host), response.GetRemoved())
	default:
		return d.say("%s will be deleted; the same command says how far that is", canonical(host))
	}
}

// AddAlias gives a community another host.
func (d *Directory) AddAlias(ctx context.Context, host, alias string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := d.client.PutHost(ctx, &ingestv1.PutHostRequest{Community: byHost(host), Alias: alias})
	switch {
	case err != nil:
		return explain("give "+host+" the host "+alias, "ingest", err)
	case !response.GetAdded():
		return d.say("%s is a host of %s already; nothing was changed", canonical(alias), canonical(host))
	}
	return d.say("%s is a host of %s, %s", canonical(alias), canonical(host), soon)
}

// RemoveAlias takes a host from a community.
func (d *Directory) RemoveAlias(ctx context.Context, host, alias string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := d.client.RemoveHost(ctx, &ingestv1.RemoveHostRequest{Community: byHost(host), Alias: alias}); err != nil {
		return explain("take the host "+alias+" from "+host, "ingest", err)
	}
	return d.say("%s is no host of %s any more; who is connected by it is disconnected", canonical(alias), canonical(host))
}

// Release lets a host go that a deleted community had.
func (d *Directory) Release(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := d.client.ReleaseHost(ctx, &ingestv1.ReleaseHostRequest{Host: host})
	switch {
	case err != nil:
		return explain("release "+host, "ingest", err)
	case !response.GetReleased():
		return d.say("%s is free already; nothing was changed", canonical(host))
	}
	return d.say("%s is free", canonical(host))
}

// explainWhole explains why nothing was done with a community as a whole. That there is none is said, too, of one that belongs to
// somebody else than was named.
func explainWhole(what string, err error) error {
	explained := explain(what, "ingest", err)
	if status.Code(err) == codes.NotFound {
		return fmt.Errorf("%w (apiary community list shows which there are, and members HOST whose it is; one that nobody owns is given to a key by transfer; one that is being deleted is gone)", explained)
	}
	return explained
}
