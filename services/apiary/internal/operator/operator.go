// Package operator is the operator's command line: communities and their members, and the migrations.
//
// It changes them through ingest's DirectoryService and lists them through that of search, over the unix sockets
// in the all-in-one's data directory, which only that user may open, or over the cluster's network. It must
// never read or write Postgres itself except for the migrations: ingest is the only writer, search the only
// reader. There are no goroutines.
package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/apiary-relay/apiary/pkg/nostr/nip19"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/pkg/tenant"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

// callTimeout bounds one call, the connection included.
const callTimeout = 15 * time.Second

// Directory is a connection to ingest's DirectoryService.
type Directory struct {
	conn   *grpc.ClientConn
	client ingestv1.DirectoryServiceClient
	out    io.Writer
}

// Dial prepares a connection to target (host:port or unix:///path); the first call connects. What the
// commands have to say goes to out.
func Dial(target string, out io.Writer) (*Directory, error) {
	conn, err := rpc.Dial(target, rpc.Deps{})
	if err != nil {
		return nil, err
	}
	return &Directory{conn: conn, client: ingestv1.NewDirectoryServiceClient(peer{conn}), out: out}, nil
}

// Close ends the connection.
func (d *Directory) Close() error { return d.conn.Close() }

// Create is a community to create.
type Create struct {
	Host, Name, Description string
	// Aliases are further hosts.
	Aliases []string
	// Access is open or closed.
	Access string
	// Owner is a public key, in hex or as npub; it may be empty for an open community.
	Owner string
	// IfMissing does nothing if the host has a community, whatever it is, or had one that was deleted.
	IfMissing bool
}

// CreateCommunity creates a community. If its host has one that is as it was asked for, nothing is done; if it is otherwise,
// that is an error.
func (d *Directory) CreateCommunity(ctx context.Context, c Create) error {
	access, err := parseAccess(c.Access)
	if err != nil {
		return err
	}
	request := &ingestv1.CreateCommunityRequest{
		Host: c.Host, Aliases: c.Aliases, Name: c.Name, Description: c.Description, Access: access,
	}
	if c.Owner != "" {
		if request.Owner, err = parsePubKey(c.Owner); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := d.client.CreateCommunity(ctx, request)
	switch {
	case c.IfMissing && status.Code(err) == codes.AlreadyExists:
		return d.say("%s", status.Convert(err).Message())
	case err != nil:
		return explain("create a community for "+c.Host, "ingest", err)
	}
	switch differences := response.GetDifferences(); {
	case response.GetCreated():
		return d.say("created the %s community %s, served %s", c.Access, canonical(c.Host), soon)
	case len(differences) > 0 && !c.IfMissing:
		return fmt.Errorf("create a community for %s: it has one already, and not as asked for: %s; nothing was changed (apiary community set, alias, "+
			"transfer and unarchive change it)", c.Host, strings.Join(differences, ", "))
	}
	return d.say("%s has a community already; nothing was changed", canonical(c.Host))
}

// Update is a change of a community.
type Update struct {
	Host string
	// Access is open, closed, or empty to leave it.
	Access string
	// Name and Description are new ones; nil leaves them.
	Name, Description *string
	// UnknownKinds is allow, registry-only, or empty to leave it.
	UnknownKinds string
	// Agents is admit, refuse, or empty to leave it.
	Agents string
}

// unknownKinds are the words for what happens to kinds that the registry does not know.
var unknownKinds = map[string]ingestv1.UnknownKinds{
	"":              ingestv1.UnknownKinds_UNKNOWN_KINDS_UNSPECIFIED,
	"allow":         ingestv1.UnknownKinds_UNKNOWN_KINDS_ALLOW,
	"registry-only": ingestv1.UnknownKinds_UNKNOWN_KINDS_REGISTRY_ONLY,
}

// agents are the words for what a closed community does with agents of its members.
var agents = map[string]ingestv1.Agents{
	"":       ingestv1.Agents_AGENTS_UNSPECIFIED,
	"admit":  ingestv1.Agents_AGENTS_ADMIT,
	"refuse": ingestv1.Agents_AGENTS_REFUSE,
}

// UpdateCommunity changes a community.
func (d *Directory) UpdateCommunity(ctx context.Context, u Update) error {
	if u == (Update{Host: u.Host}) {
		return errors.New("nothing to change: give --access, --name, --description, --unknown-kinds or --agents")
	}
	kinds, ok := unknownKinds[u.UnknownKinds]
	if !ok {
		return fmt.Errorf("unknown kinds are %q, not allow or registry-only", u.UnknownKinds)
	}
	admission, ok := agents[u.Agents]
	if !ok {
		return fmt.Errorf("agents are %q, not admit or refuse", u.Agents)
	}
	access, err := parseAccess(u.Access)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = d.client.UpdateCommunity(ctx, &ingestv1.UpdateCommunityRequest{
		Host: u.Host, Access: access, Name: u.Name, Description: u.Description, UnknownKinds: kinds, Agents: admission,
	})
	if err != nil {
		return explain("change the community of "+u.Host, "ingest", err)
	}
	return d.say("changed the community %s", canonical(u.Host))
}

// PutMember adds a member or changes its role.
func (d *Directory) PutMember(ctx context.Context, host, pubkey, role string) error {
	key, err := parsePubKey(pubkey)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = d.client.PutMember(ctx, &ingestv1.PutMemberRequest{Host: host, Pubkey: key, Role: role})
	if err != nil {
		return explain("add a member to "+host, "ingest", err)
	}
	return d.say("%s is now %s of %s", pubkey, role, canonical(host))
}

// RemoveMember removes a member, and says of an agent that its owner admits it all the same. Who is no member is an error.
func (d *Directory) RemoveMember(ctx context.Context, host, pubkey string) error {
	key, err := parsePubKey(pubkey)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := d.client.RemoveMember(ctx, &ingestv1.RemoveMemberRequest{Host: host, Pubkey: key})
	if err != nil {
		return explain("remove a member from "+host, "ingest", err)
	}
	admitted := ""
	if owner := response.GetAdmittedBy(); len(owner) > 0 {
		admitted = fmt.Sprintf(", but its owner %x admits it as its agent: to keep it out takes a ban, or the removal of the owner", owner)
	}
	if !response.GetRemoved() {
		return fmt.Errorf("remove a member from %s: %s is none%s; apiary community members %s lists them", host, pubkey, admitted, host)
	}
	return d.say("%s is not a member of %s any more%s", pubkey, canonical(host), admitted)
}

// soon is how long a gateway that was asked for a host before may not know what has become of it (gateway's host-ttl).
const soon = "within 5 seconds"

// canonical is the one form of a host, in which services know it.
func canonical(host string) string {
	if normal, err := tenant.NormalizeHost(host); err == nil {
		return normal
	}
	return host // which they have refused
}

func (d *Directory) say(format string, args ...any) error {
	_, err := fmt.Fprintf(d.out, format+"\n", args...)
	return err
}

// UnreachableError says that a service cannot be reached.
type UnreachableError struct {
	// What was to be done, and by which service.
	What, Service string
	// Reason is the system's, such as "dial unix /data/control/ingest.sock: connect: no such file or directory".
	Reason string
}

// Error says what could not be done, and why.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%s: cannot reach %s (%s): is it running?", e.What, e.Service, e.Reason)
}

// explain keeps of an RPC error what a person can use. The operator may read what clients may not.
func explain(what, service string, err error) error {
	var wrong *wrongServiceError
	if errors.As(err, &wrong) {
		return misdirected(what, service, wrong)
	}
	s := status.Convert(err)
	if s.Code() == codes.Unavailable {
		reason := s.Message()
		if _, dial, found := strings.Cut(reason, "Error while dialing: "); found {
			reason = strings.TrimSuffix(dial, `"`)
		}
		if strings.Contains(reason, "server preface") {
			return fmt.Errorf("%s: who answers there does not speak gRPC, and so is not %s (make cluster prints the addresses; the usual ports are 7401 of ingest, 7403 of search)", what, service)
		}
		return &UnreachableError{What: what, Service: service, Reason: reason}
	}
	return fmt.Errorf("%s: %s%s", what, s.Message(), wayOn(s.Message()))
}

// wayOn is what an operator can do about what a service has answered, empty if that says itself.
func wayOn(message string) string {
	rest, retired := strings.CutPrefix(message, "host_retired: ")
	if !retired {
		return ""
	}
	host, _, _ := strings.Cut(rest, " ")
	return fmt.Sprintf(" (when everything of that is removed, apiary community release %s lets the host go)", canonical(host))
}

func parseAccess(text string) (ingestv1.Access, error) {
	switch text {
	case "":
		return ingestv1.Access_ACCESS_UNSPECIFIED, nil
	case "open":
		return ingestv1.Access_ACCESS_OPEN, nil
	case "closed":
		return ingestv1.Access_ACCESS_CLOSED, nil
	}
	return 0, fmt.Errorf("access is open or closed, not %q", text)
}

func parsePubKey(text string) ([]byte, error) {
	key, err := nip19.ParsePubKey(text)
	if err != nil {
		return nil, fmt.Errorf("public key %q: %w", text, err)
	}
	return key[:], nil
}
