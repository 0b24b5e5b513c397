package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/apiary-relay/apiary/pkg/fault"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/apiary"
)

// localHost is the community that exists without asking. Clients that connect to 127.0.0.1 ask for it too.
const localHost = "localhost"

// welcome creates the community and tells the person at the terminal what to do next.
func (p *process) welcome(ctx context.Context, services *apiary.Service) error {
	created, err := createCommunity(ctx, services, p.operator)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(p.out, p.text(services.Addr(), p.env.AdminAddr(), created))
	return err
}

// createCommunity makes the open community for localhost, owned by the operator, unless there is one, or was one that the
// operator has deleted.
func createCommunity(ctx context.Context, services *apiary.Service, operator identity) (created bool, err error) {
	conn, err := services.Dial()
	if err != nil {
		return false, err
	}
	owner := operator.key.PubKey()
	response, err := ingestv1.NewDirectoryServiceClient(conn).CreateCommunity(ctx, &ingestv1.CreateCommunityRequest{
		Host: localHost, Name: localHost, Access: ingestv1.Access_ACCESS_OPEN, Owner: owner[:],
	})
	switch {
	case fault.ReasonOf(err) == fault.Exists:
		err = nil // the operator has deleted it
	case err != nil:
		err = fmt.Errorf("create the community for %s: %s", localHost, fault.Message(err))
	}
	return response.GetCreated(), errors.Join(err, conn.Close())
}

// text is what is printed when everything is up.
func (p *process) text(addr, admin net.Addr, created bool) string {
	var b strings.Builder
	url, relayFlag := "ws://"+localHost, ""
	if _, port, err := net.SplitHostPort(addr.String()); err == nil {
		url += ":" + port
		if port != defaultPort {
			relayFlag = " --relay " + url
		}
	}
	dataFlag := ""
	if p.cfg.Data != "" {
		dataFlag = " --data " + quote(p.dir.Path())
	}
	for _, id := range []struct {
		name string
		identity
	}{{"relay", p.relay}, {"operator", p.operator}} {
		if id.created {
			fmt.Fprintf(&b, "made the %s key %s (secret in %s)\n", id.name, id.key.PubKey(), id.path)
		}
	}
	if created {
		fmt.Fprintf(&b, "made the community %q, open to any key; to close it to its members (%s client whoami prints your PUBKEY):\n", localHost, p.program)
		fmt.Fprintf(&b, "    %s community member-add %s PUBKEY%s\n", p.program, localHost, dataFlag)
		fmt.Fprintf(&b, "    %s community set %s --access closed%s\n", p.program, localHost, dataFlag)
	}
	fmt.Fprintf(&b, "data in %s", p.dir.Path())
	if admin != nil {
		fmt.Fprintf(&b, ", admin on http://%s", admin)
	}
	fmt.Fprint(&b, "\n\n")
	fmt.Fprintf(&b, "ready   %s\n\n", url)
	fmt.Fprintf(&b, "Try, in two terminals:\n")
	fmt.Fprintf(&b, "    %s client listen%s\n", p.program, relayFlag)
	fmt.Fprintf(&b, "    %s client publish%s \"hello, hive\"\n", p.program, relayFlag)
	fmt.Fprintf(&b, "and then, what is stored:\n")
	fmt.Fprintf(&b, "    %s client query%s\n", p.program, relayFlag)
	fmt.Fprintf(&b, "\nCtrl-C stops it.\n")
	return b.String()
}

// defaultPort is the one that the client's commands use by themselves.
const defaultPort = "3000"

// quote makes a path one word of a shell command.
func quote(path string) string {
	if strings.ContainsAny(path, " \t\n'\"\\$&;|<>()*?[]#~`!{}") {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}
