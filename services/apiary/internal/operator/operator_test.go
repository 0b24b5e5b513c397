package operator_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr/nip19"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/apiary/internal/operator"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// directory answers as ingest would, for one community, localhost.
type directory struct {
	ingestv1.UnimplementedDirectoryServiceServer
	members map[string]string
	access  ingestv1.Access
	unknown ingestv1.UnknownKinds
	agents  ingestv1.Agents
	// admittedBy is the owner of whoever is removed.
	admittedBy []byte

	owner           string
	archived, quiet bool
	stage           ingestv1.DeletionStage
}

func (d *directory) CreateCommunity(_ context.Context, r *ingestv1.CreateCommunityRequest) (*ingestv1.CreateCommunityResponse, error) {
	switch r.GetHost() {
	case "old.example":
		return nil, fault.New(fault.Exists, "host_retired: old.example was the host of a community that was deleted")
	case "localhost":
		response := &ingestv1.CreateCommunityResponse{Community: 1}
		if len(r.GetAliases()) > 0 {
			response.Differences = []string{"description", "aliases"}
		}
		return response, nil
	}
	return &ingestv1.CreateCommunityResponse{Community: 2, Created: true}, nil
}

func (d *directory) UpdateCommunity(_ context.Context, r *ingestv1.UpdateCommunityRequest) (*ingestv1.UpdateCommunityResponse, error) {
	if r.GetHost() != "localhost" {
		return nil, fault.New(fault.NotFound, "no community has this host")
	}
	d.access, d.unknown, d.agents = r.GetAccess(), r.GetUnknownKinds(), r.GetAgents()
	return &ingestv1.UpdateCommunityResponse{}, nil
}

func (d *directory) PutMember(_ context.Context, r *ingestv1.PutMemberRequest) (*ingestv1.PutMemberResponse, error) {
	d.members[string(r.GetPubkey())] = r.GetRole()
	return &ingestv1.PutMemberResponse{}, nil
}

func (d *directory) RemoveMember(_ context.Context, r *ingestv1.RemoveMemberRequest) (*ingestv1.RemoveMemberResponse, error) {
	_, was := d.members[string(r.GetPubkey())]
	delete(d.members, string(r.GetPubkey()))
	return &ingestv1.RemoveMemberResponse{Removed: was, AdmittedBy: d.admittedBy}, nil
}

// listen runs a server on a unix socket and returns its address.
func listen(t *testing.T, register func(grpc.ServiceRegistrar)) (target string) {
	t.Helper()
	target = "unix://" + filepath.Join(t.TempDir(), "s")
	server := rpc.NewServer(rpc.ServerConfig{Listen: target}, rpc.ServerOptions{})
	server.Register(register)
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- server.Run(ctx, func() { close(ready) }) }()
	<-ready
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return target
}

// serve runs d and returns a connection to it and what its commands print.
func serve(t *testing.T, d *directory) (*operator.Directory, *strings.Builder) {
	t.Helper()
	target := listen(t, func(r grpc.ServiceRegistrar) { ingestv1.RegisterDirectoryServiceServer(r, d) })
	var out strings.Builder
	client, err := operator.Dial(target, &out)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client, &out
}

func TestCommunity(t *testing.T) {
	d := &directory{members: map[string]string{}}
	client, out := serve(t, d)
	alice := nostrtest.PubKey("alice")

	require.NoError(t, client.CreateCommunity(t.Context(), operator.Create{Host: "Team.Example.:443", Access: "closed", Owner: alice.String()}))
	require.Equal(t, "created the closed community team.example, served within 5 seconds\n", out.String())
	require.NoError(t, client.CreateCommunity(t.Context(), operator.Create{Host: "localhost", Access: "open"}))
	require.Contains(t, out.String(), "localhost has a community already")
	require.NoError(t, client.CreateCommunity(t.Context(), operator.Create{Host: "localhost", Aliases: []string{"other.example"}, Access: "open", IfMissing: true}))
	require.EqualError(t, client.CreateCommunity(t.Context(), operator.Create{Host: "localhost", Aliases: []string{"other.example"}, Access: "open"}),
		"create a community for localhost: it has one already, and not as asked for: description, aliases; nothing was changed "+
			"(apiary community set, alias, transfer and unarchive change it)")
	retired := operator.Create{Host: "old.example", Access: "open"}
	require.EqualError(t, client.CreateCommunity(t.Context(), retired), "create a community for old.example: host_retired: old.example was the host of "+
		"a community that was deleted (when everything of that is removed, apiary community release old.example lets the host go)")
	retired.IfMissing = true
	require.NoError(t, client.CreateCommunity(t.Context(), retired))

	require.NoError(t, client.UpdateCommunity(t.Context(), operator.Update{Host: "localhost", Access: "closed"}))
	require.Contains(t, out.String(), "changed the community localhost\n")
	require.Equal(t, ingestv1.Access_ACCESS_CLOSED, d.access)
	require.NoError(t, client.UpdateCommunity(t.Context(), operator.Update{Host: "localhost", UnknownKinds: "registry-only"}))
	require.Equal(t, ingestv1.UnknownKinds_UNKNOWN_KINDS_REGISTRY_ONLY, d.unknown)
	require.NoError(t, client.UpdateCommunity(t.Context(), operator.Update{Host: "localhost", Agents: "refuse"}))
	require.Equal(t, ingestv1.Agents_AGENTS_REFUSE, d.agents)
	require.NoError(t, client.PutMember(t.Context(), "LOCALHOST", alice.String(), "admin"))
	require.Contains(t, out.String(), alice.String()+" is now admin of localhost\n")
	require.Equal(t, map[string]string{string(alice[:]): "admin"}, d.members)
	npub, err := nip19.Ref{Type: nip19.PubKey, PubKey: alice}.Encode()
	require.NoError(t, err)
	require.NoError(t, client.RemoveMember(t.Context(), "127.0.0.1", npub))
	require.Contains(t, out.String(), npub+" is not a member of localhost any more\n")
	require.Empty(t, d.members)
	require.ErrorContains(t, client.RemoveMember(t.Context(), "localhost", npub), "is none; apiary community members localhost lists them")

	// An agent's owner may admit it all the same, whether it was a member itself or not.
	require.NotContains(t, out.String(), "admits it")
	owner := nostrtest.PubKey("owner")
	d.admittedBy = owner[:]
	require.NoError(t, client.PutMember(t.Context(), "localhost", npub, "member"))
	require.NoError(t, client.RemoveMember(t.Context(), "localhost", npub))
	admitted := "but its owner " + owner.String() + " admits it as its agent"
	require.Contains(t, out.String(), npub+" is not a member of localhost any more, "+admitted)
	require.ErrorContains(t, client.RemoveMember(t.Context(), "localhost", npub), npub+" is none, "+admitted)
}

func TestMistakes(t *testing.T) {
	client, _ := serve(t, &directory{})
	err := client.UpdateCommunity(t.Context(), operator.Update{Host: "elsewhere", Access: "open"})
	require.EqualError(t, err, "change the community of elsewhere: no community has this host")
	require.ErrorContains(t, client.UpdateCommunity(t.Context(), operator.Update{Host: "localhost"}), "nothing to change")
	require.ErrorContains(t, client.UpdateCommunity(t.Context(), operator.Update{Host: "localhost", UnknownKinds: "some"}), "allow or registry-only")
	require.ErrorContains(t, client.UpdateCommunity(t.Context(), operator.Update{Host: "localhost", Agents: "some"}), "admit or refuse")
	require.ErrorContains(t, client.UpdateCommunity(t.Context(), operator.Update{Host: "localhost", Access: "ajar"}), "open or closed")
	require.ErrorContains(t, client.PutMember(t.Context(), "localhost", "npub1", "member"), "public key")

	nobody, err := operator.Dial("unix://"+filepath.Join(t.TempDir(), "nobody"), &strings.Builder{})
	require.NoError(t, err)
	defer nobody.Close()
	err = nobody.PutMember(t.Context(), "localhost", nostrtest.PubKey("alice").String(), "member")
	var unreachable *operator.UnreachableError
	require.ErrorAs(t, err, &unreachable)
	require.Regexp(t, `^dial unix \S+nobody: connect: no such file or directory$`, unreachable.Reason)
	require.ErrorContains(t, err, "is it running?")
}

// The address of one service is easily given for another's; who does so is told which one it is.
func TestAnotherServiceAnswers(t *testing.T) {
	search := listen(t, func(r grpc.ServiceRegistrar) { searchv1.RegisterDirectoryServiceServer(r, lists{}) })
	client, err := operator.Dial(search, &strings.Builder{})
	require.NoError(t, err)
	defer client.Close()
	err = client.PutMember(t.Context(), "localhost", nostrtest.PubKey("alice").String(), "member")
	require.EqualError(t, err, "add a member to localhost: search answers there, not ingest: --ingest wants an address of ingest (make cluster prints them; the usual ports are 7401 of ingest, 7403 of search)")

	ingest := listen(t, func(r grpc.ServiceRegistrar) { ingestv1.RegisterDirectoryServiceServer(r, &directory{}) })
	reader, err := operator.DialReader(ingest, operator.List{Out: &strings.Builder{}, Notes: &strings.Builder{}, Limit: 1})
	require.NoError(t, err)
	defer reader.Close()
	require.ErrorContains(t, reader.Communities(t.Context()), "list the communities: ingest answers there, not search: --search wants")

	nobody := listen(t, func(grpc.ServiceRegistrar) {})
	other, err := operator.Dial(nobody, &strings.Builder{})
	require.NoError(t, err)
	defer other.Close()
	require.ErrorContains(t, other.RemoveMember(t.Context(), "localhost", nostrtest.PubKey("alice").String()), "another service answers there, not ingest")

	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	clients, err := operator.Dial(strings.TrimPrefix(web.URL, "http://"), &strings.Builder{})
	require.NoError(t, err)
	defer clients.Close()
	require.ErrorContains(t, clients.RemoveMember(t.Context(), "localhost", nostrtest.PubKey("alice").String()), "does not speak gRPC")
}
