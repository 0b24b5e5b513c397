package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/apiary-relay/apiary/tools/chaos/internal/checker"
)

// result is the RESULT line. Times are in milliseconds.
type result struct {
	Missed           int `json:"missed"`
	Duplicated       int `json:"duplicated"`
	Forbidden        int `json:"forbidden"`
	UnexplainedClose int `json:"unexplained_closes"`
	// PauseP99 is over all subscriptions and all kills of a fan-out node while nothing else was broken; 0 without any.
	PauseP99   int64 `json:"pause_p99_ms"`
	Events     int   `json:"events"`
	Deliveries int   `json:"deliveries"`
	// Ephemeral is how many of the events are, Excused how many of their deliveries never came and are not counted as missed.
	Ephemeral int `json:"ephemeral"`
	Excused   int `json:"excused"`
	// OutOfEntitlement counts stray deliveries.
	OutOfEntitlement int `json:"out_of_entitlement"`
	// LongestPause is of any subscription that was entitled all the time, whatever was done.
	LongestPause int64 `json:"longest_pause_ms"`
}

// table collects reports.
type table struct {
	out      io.Writer
	rows     []row
	examples []string
}

type row struct {
	name   string
	report checker.Report
}

func (t *table) add(name string, r checker.Report) {
	t.rows = append(t.rows, row{name, r})
	for _, example := range r.Examples {
		t.examples = append(t.examples, name+": "+example)
	}
}

// sum adds the reports up.
func (t *table) sum() checker.Report {
	var all checker.Report
	for _, r := range t.rows {
		all.Events += r.report.Events
		all.Deliveries += r.report.Deliveries
		all.Ephemeral += r.report.Ephemeral
		all.Excused += r.report.Excused
		all.Missed += r.report.Missed
		all.Duplicated += r.report.Duplicated
		all.Forbidden += r.report.Forbidden
		all.Stray += r.report.Stray
		all.UnexplainedCloses += r.report.UnexplainedCloses
		all.Pauses = append(all.Pauses, r.report.Pauses...)
		all.Longest = max(all.Longest, r.report.Longest)
	}
	return all
}

func (t *table) right() bool {
	all := t.sum()
	return all.Right()
}

// finish prints everything.
func (t *table) finish() error {
	all := t.sum()
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "SCENARIO\tEVENTS\tEPHEMERAL\tDELIVERIES\tMISSED\tEXCUSED\tDUPLICATED\tFORBIDDEN\tOUT OF ENTITLEMENT\tUNEXPLAINED CLOSES\tPAUSE P99\tLONGEST PAUSE\t")
	for _, r := range append(slices.Clone(t.rows), row{"all", all}) {
		pause := "-"
		if len(r.report.Pauses) > 0 {
			pause = quantile(r.report.Pauses, 0.99).Round(time.Millisecond).String()
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t\n", r.name, r.report.Events, r.report.Ephemeral,
			r.report.Deliveries, r.report.Missed, r.report.Excused, r.report.Duplicated, r.report.Forbidden, r.report.Stray, r.report.UnexplainedCloses, pause, r.report.Longest.Round(time.Millisecond))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(t.examples) > 0 {
		fmt.Fprintf(t.out, "\n%s\n", strings.Join(t.examples, "\n"))
	}
	line, err := json.Marshal(result{
		Missed: all.Missed, Duplicated: all.Duplicated, Forbidden: all.Forbidden, UnexplainedClose: all.UnexplainedCloses,
		PauseP99: quantile(all.Pauses, 0.99).Milliseconds(), Events: all.Events, Deliveries: all.Deliveries,
		Ephemeral: all.Ephemeral, Excused: all.Excused,
		OutOfEntitlement: all.Stray, LongestPause: all.Longest.Milliseconds(),
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.out, "RESULT %s\n", line)
	return err
}

// quantile is the nearest-rank quantile, 0 < q ≤ 1; 0 of no values.
func quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
