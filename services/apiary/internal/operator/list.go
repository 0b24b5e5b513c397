package operator

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/rpc"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/apiary/internal/client"
)

// maxCounted is where search stops to count a community's members.
const maxCounted = 100_000

// Reader is a connection to search's DirectoryService, which lists what Directory changes.
type Reader struct {
	conn   *grpc.ClientConn
	client searchv1.DirectoryServiceClient
	list   List
}

// List says how a Reader prints.
type List struct {
	// Out gets what is listed, Notes that there is more.
	Out, Notes io.Writer
	// Limit is the most entries that are printed, at least 1.
	Limit int
	// JSON prints one object on a line, without a heading.
	JSON bool
}

// DialReader prepares a connection to target (host:port or unix:///path); the first call connects.
func DialReader(target string, list List) (*Reader, error) {
	conn, err := rpc.Dial(target, rpc.Deps{})
	if err != nil {
		return nil, err
	}
	return &Reader{conn: conn, client: searchv1.NewDirectoryServiceClient(peer{conn}), list: list}, nil
}

// Close ends the connection.
func (r *Reader) Close() error { return r.conn.Close() }

// community is one line of the list of communities.
type community struct {
	Hosts   []string  `json:"hosts"`
	Name    string    `json:"name"`
	Access  string    `json:"access"`
	Members uint32    `json:"members"`
	Created time.Time `json:"created"`
	// State is active, archived or deleting.
	State string `json:"state"`
	UUID  string `json:"uuid"`
}

// stateOf is how far a community is on its way out.
func stateOf(c *searchv1.CommunityEntry) string {
	switch {
	case c.GetDeleting():
		return "deleting"
	case c.GetArchiveTime() != nil:
		return "archived"
	}
	return "active"
}

func (c community) row() string {
	counted := strconv.FormatUint(uint64(c.Members), 10)
	if c.Members >= maxCounted {
		counted += "+"
	}
	return strings.Join([]string{strings.Join(c.Hosts, ","), c.Access, c.State, counted, date(c.Created), client.Printable(c.Name)}, "\t")
}

// Communities prints all communities, the oldest first: hosts, access, state, how many members, since when, name.
func (r *Reader) Communities(ctx context.Context) error {
	return list(ctx, r, "HOSTS\tACCESS\tSTATE\tMEMBERS\tCREATED\tNAME", func(ctx context.Context, token string, size uint32) ([]community, string, error) {
		page, err := r.client.ListCommunities(ctx, &searchv1.ListCommunitiesRequest{PageToken: token, PageSize: size})
		if err != nil {
			return nil, "", explain("list the communities", "search", err)
		}
		entries := make([]community, len(page.GetCommunities()))
		for i, c := range page.GetCommunities() {
			entries[i] = community{
				Hosts: append([]string{}, c.GetHosts()...), Name: c.GetName(), Access: "open", Members: c.GetMembers(), Created: c.GetCreateTime().AsTime(),
				State: stateOf(c), UUID: c.GetUuid(),
			}
			if c.GetClosed() {
				entries[i].Access = "closed"
			}
		}
		return entries, page.GetNextPageToken(), nil
	})
}

// member is one line of the list of members.
type member struct {
	PubKey string    `json:"pubkey"`
	Role   string    `json:"role"`
	Since  time.Time `json:"since"`
}

func (m member) row() string { return strings.Join([]string{m.PubKey, m.Role, date(m.Since)}, "\t") }

// Members prints the members of a host's community in the order of their keys.
func (r *Reader) Members(ctx context.Context, host string) error {
	return list(ctx, r, "PUBKEY\tROLE\tSINCE", func(ctx context.Context, token string, size uint32) ([]member, string, error) {
		page, err := r.client.ListMembers(ctx, &searchv1.ListMembersRequest{Host: host, PageToken: token, PageSize: size})
		if err != nil {
			return nil, "", explain("list the members of "+host, "search", err)
		}
		entries := make([]member, len(page.GetMembers()))
		for i, m := range page.GetMembers() {
			entries[i] = member{PubKey: hex.EncodeToString(m.GetPubkey()), Role: m.GetRole(), Since: m.GetAddTime().AsTime()}
		}
		return entries, page.GetNextPageToken(), nil
	})
}

// list prints page after page until there is none or the limit is reached; no more than a page is held.
func list[E interface{ row() string }](ctx context.Context, r *Reader, heading string, read func(ctx context.Context, token string, size uint32) ([]E, string, error)) error {
	encoder := json.NewEncoder(r.list.Out)
	token, left := "", r.list.Limit
	for first := true; first || (token != "" && left > 0); first = false {
		entries, next, err := bounded(ctx, func(ctx context.Context) ([]E, string, error) {
			return read(ctx, token, uint32(min(left, 1000)))
		})
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(r.list.Out, 0, 0, 2, ' ', 0)
		if first && !r.list.JSON {
			if _, err := fmt.Fprintln(table, heading); err != nil {
				return err
			}
		}
		for _, e := range entries {
			if r.list.JSON {
				err = encoder.Encode(e)
			} else {
				_, err = fmt.Fprintln(table, e.row())
			}
			if err != nil {
				return err
			}
		}
		if err := table.Flush(); err != nil {
			return err
		}
		token, left = next, left-len(entries)
	}
	if token != "" {
		_, err := fmt.Fprintf(r.list.Notes, "there are more than %d; --limit shows them\n", r.list.Limit)
		return err
	}
	return nil
}

// bounded makes one call within callTimeout.
func bounded[E any](ctx context.Context, call func(context.Context) ([]E, string, error)) ([]E, string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx)
}

// date is as exact as a table needs.
func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }
