package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// policy is what a NetworkPolicy of the chart says, as far as it is about the chart's own pods.
type policy struct {
	Kind     string
	Metadata struct {
		Labels map[string]string
	}
	Spec struct {
		Ingress []struct{ From []peer }
		Egress  []struct{ To []peer }
	}
}

type peer struct {
	PodSelector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	} `yaml:"podSelector"`
}

const componentLabel = "app.kubernetes.io/component"

var (
	// serviceRow is a line of the table of services: its name, what it owns, what it speaks.
	serviceRow = regexp.MustCompile(`(?m)^\| (gateway|ingest|fanout|search) \| [^|]* \| ([^|]*) \|$`)
	calls      = regexp.MustCompile(`gRPC client of ([a-z, ]+)`)
)

// architectureArrows reads who calls whom from the table of services in the architecture, sorted.
func architectureArrows(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../services/docs/architecture.md")
	require.NoError(t, err)
	var arrows []string
	rows := serviceRow.FindAllStringSubmatch(string(page), -1)
	require.Len(t, rows, 4)
	for _, row := range rows {
		from, speaks := row[1], row[2]
		if m := calls.FindStringSubmatch(speaks); m != nil {
			for _, to := range strings.Split(m[1], ", ") {
				arrows = append(arrows, from+" -> "+strings.TrimSpace(to))
			}
		}
		for word, to := range map[string]string{"NATS": "nats", "Postgres": "postgres"} {
			if strings.Contains(speaks, word) {
				arrows = append(arrows, from+" -> "+to)
			}
		}
	}
	// Not services, but at work in the chart: the Job that migrates, NATS among its own, and what acts as operators do, by
	// the command line, or as a client, which helm test is.
	arrows = append(arrows, "migrate -> postgres", "nats -> nats", "operator -> ingest", "operator -> search", "operator -> gateway")
	slices.Sort(arrows)
	return arrows
}

// policyArrows reads who may call whom from the policies of a render with everything of its own, as the callers' policies
// say and as the callees' do, each sorted.
func policyArrows(t *testing.T) (egress, ingress []string) {
	t.Helper()
	render, err := os.ReadFile("../../charts/apiary/testdata/evaluation.golden.yaml")
	require.NoError(t, err)
	name := func(p peer) string {
		if p.PodSelector.MatchLabels["apiary/operator"] == "true" {
			return "operator"
		}
		return p.PodSelector.MatchLabels[componentLabel]
	}
	for documents := yaml.NewDecoder(bytes.NewReader(render)); ; {
		var p policy
		err := documents.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if p.Kind != "NetworkPolicy" {
			continue
		}
		own := p.Metadata.Labels[componentLabel]
		for _, rule := range p.Spec.Egress {
			for _, to := range rule.To {
				egress = append(egress, own+" -> "+name(to))
			}
		}
		for _, rule := range p.Spec.Ingress {
			for _, from := range rule.From {
				ingress = append(ingress, name(from)+" -> "+own)
			}
		}
	}
	slices.Sort(egress)
	slices.Sort(ingress)
	return egress, ingress
}

// The network policies allow exactly the arrows of the architecture, at both ends of each.
func TestPoliciesAreTheArrowsOfTheArchitecture(t *testing.T) {
	want := architectureArrows(t)
	egress, ingress := policyArrows(t)
	require.Equal(t, want, egress, "what callers may call")
	// Everybody may come to the gateways, unless the values say who.
	require.Equal(t, slices.DeleteFunc(want, func(a string) bool { return a == "operator -> gateway" }), ingress, "who may call")
}
