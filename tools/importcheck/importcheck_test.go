// Package importcheck holds the walls between services that Go's internal directories do not: it lists
// what each command links and fails on packages that have no business there.
package importcheck

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const module = "github.com/apiary-relay/apiary/"

// forbidden lists import path prefixes that a command must not link, with the reason.
var forbidden = []struct {
	command string
	prefix  string
	why     string
}{
	{"services/gateway/cmd/gateway", "github.com/jackc/pgx", "the gateway has no database"},
	{"services/gateway/cmd/gateway", "github.com/nats-io/nats-server", "only the all-in-one embeds NATS"},
	{"services/fanout/cmd/fanout", "github.com/jackc/pgx", "fan-out has no database"},
	{"services/search/cmd/search", "github.com/nats-io/nats-server", "only the all-in-one embeds NATS"},
	{"services/ingest/cmd/ingest", "github.com/nats-io/nats-server", "only the all-in-one embeds NATS"},
	{"services/fanout/cmd/fanout", "github.com/nats-io/nats-server", "only the all-in-one embeds NATS"},
	{"services/ingest/cmd/ingest", "github.com/coder/websocket", "only the gateway speaks WebSocket"},
	{"services/search/cmd/search", "github.com/coder/websocket", "only the gateway speaks WebSocket"},
	{"services/fanout/cmd/fanout", "github.com/coder/websocket", "only the gateway speaks WebSocket"},
	{"services/apiary/cmd/apiary", "testing", "test code in a product binary"},
	{"services/conformance/cmd/conformance", "testing", "test code in a program"},
	{"services/conformance/cmd/conformance", "google.golang.org/grpc", "the suite looks at a relay from outside"},
	{"services/conformance/cmd/conformance", module + "services/conformance/internal/naive", "the suite knows no relay"},
}

func TestCommandsLinkOnlyWhatTheyMay(t *testing.T) {
	deps := map[string][]string{}
	for _, rule := range forbidden {
		if _, known := deps[rule.command]; !known {
			deps[rule.command] = list(t, rule.command)
		}
		for _, dep := range deps[rule.command] {
			require.Falsef(t, dep == rule.prefix || strings.HasPrefix(dep, rule.prefix+"/"), "%s links %s: %s", rule.command, dep, rule.why)
		}
	}
}

func TestServicesDoNotLinkEachOther(t *testing.T) {
	services := []string{"gateway", "ingest", "fanout", "search", "audit", "workflow", "media"}
	for _, service := range services {
		for _, dep := range list(t, "services/"+service+"/cmd/"+service) {
			for _, other := range services {
				if other != service {
					require.Falsef(t, dep == module+"services/"+other || strings.HasPrefix(dep, module+"services/"+other+"/"),
						"%s links %s: services never import each other", service, dep)
				}
			}
		}
	}
}

// list returns the import paths that a command links.
func list(t *testing.T, command string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "list", "-deps", module+command).Output()
	require.NoError(t, err, "list the dependencies of %s", command)
	return strings.Fields(string(out))
}
