package topology

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/apiary-relay/apiary/pkg/datadir"
	"github.com/apiary-relay/apiary/tools/internal/supervise"
)

// State is what cluster.json holds: enough for a test or a chaos tool to reach and to kill every process.
type State struct {
	// URL is where clients connect, through the balancer.
	URL string `json:"url"`
	// Supervisor is the process id of the cluster program.
	Supervisor int `json:"supervisor"`
	// DatabaseURL is set when the cluster runs a Postgres of its own. A URL that the user gave may hold a
	// password and is not written down.
	DatabaseURL string `json:"database_url,omitempty"`
	// NATSURL is where the services find NATS.
	NATSURL string `json:"nats_url"`
	// Processes are the children, in the order of the plan.
	Processes []ProcessState `json:"processes"`
}

// ProcessState is one child.
type ProcessState struct {
	Name    string `json:"name"`
	Service string `json:"service"`
	// PID is 0 while the process does not run.
	PID      int             `json:"pid"`
	State    supervise.State `json:"state"`
	Restarts int             `json:"restarts"`
	// Address is what the process serves: the client port of a gateway, gRPC of the others.
	Address string `json:"address,omitempty"`
	// Admin serves /healthz, /readyz, /metrics and /debug/pprof.
	Admin string `json:"admin,omitempty"`
	Log   string `json:"log"`
}

// State combines the plan with what the supervisor knows.
func (p *Plan) State(statuses []supervise.Status) State {
	state := State{URL: p.URL, Supervisor: p.supervisor, NATSURL: p.NATSURL, DatabaseURL: p.privateDatabaseURL}
	for _, process := range p.All() {
		i := slices.IndexFunc(statuses, func(s supervise.Status) bool { return s.Name == process.Spec.Name })
		if i < 0 {
			continue // not started yet
		}
		state.Processes = append(state.Processes, ProcessState{
			Name: process.Spec.Name, Service: process.Service,
			PID: statuses[i].PID, State: statuses[i].State, Restarts: statuses[i].Restarts,
			Address: process.Address, Admin: process.Admin, Log: process.Spec.Log,
		})
	}
	return state
}

// Write replaces the file at path; readers see the old state or the new one, whole.
func (s State) Write(path string) error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode cluster state: %w", err)
	}
	return datadir.Replace(path, append(content, '\n'))
}

// Table writes the processes for people.
func (s State) Table(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "PROCESS\tPID\tADDRESS\tADMIN")
	for _, process := range s.Processes {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", process.Name, process.PID, process.Address, process.Admin)
	}
	return table.Flush()
}

// Hints writes what to try with apiary, the program of that path.
func (s State) Hints(w io.Writer, apiary string) error {
	_, err := fmt.Fprintf(w, "Try, in two terminals:\n    %[1]s client listen --relay %[2]s\n    %[1]s client publish --relay %[2]s \"hello, hive\"\n", apiary, s.URL)
	if err != nil {
		return err
	}
	for _, command := range []struct{ text, service string }{
		{"list", "search"},
		{"member-add localhost PUBKEY", "ingest"},
	} {
		i := slices.IndexFunc(s.Processes, func(p ProcessState) bool { return p.Service == command.service })
		if i < 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "    %s community %s --%s %s\n", apiary, command.text, command.service, s.Processes[i].Address); err != nil {
			return err
		}
	}
	return nil
}
