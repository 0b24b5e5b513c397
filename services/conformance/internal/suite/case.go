package suite

import (
	"cmp"
	"fmt"
	"slices"
)

// Case is one thing that a relay does.
type Case struct {
	// ID names the case within its NIP, like "replaceable/newest-wins".
	ID string
	// NIP is where the rule stands.
	NIP int
	// Title says what the relay does.
	Title string
	// Required is set for what a relay must do. What the NIP leaves open (SHOULD, MAY), or what users only
	// hope for, is not claimed by a relay that does otherwise.
	Required bool
	// Needs are the NIPs that the relay must claim for the case to concern it; NIP-01 needs no claim.
	Needs []int
	// Run finds out.
	Run func(t *T)
}

// Name returns the name of the case among all cases.
func (c *Case) Name() string { return fmt.Sprintf("NIP-%02d/%s", c.NIP, c.ID) }

// Group returns cases of one NIP that concern only relays that claim it. It leaves its arguments as they are:
// they are shared by all who ask for the cases.
func Group(nip int, cases ...Case) []Case {
	cases = slices.Clone(cases)
	for i := range cases {
		cases[i].NIP = nip
		if nip != 1 && !slices.Contains(cases[i].Needs, nip) {
			cases[i].Needs = append([]int{nip}, cases[i].Needs...)
		}
	}
	return cases
}

// Outcome is how a case ended.
type Outcome int

// The outcomes.
const (
	Passed Outcome = iota
	Failed
	NotClaimed
)

// String returns the outcome as the table has it.
func (o Outcome) String() string {
	switch o {
	case Passed:
		return "passed"
	case Failed:
		return "FAILED"
	default:
		return "not claimed"
	}
}

// Result is what a case found.
type Result struct {
	Case    Case
	Outcome Outcome
	// Expected and Saw are set for a failure, and for what an optional case found instead.
	Expected, Saw string
	// Why says why the relay does not claim it.
	Why string
}

// Report is the result of a run, in the order of NIPs and of the cases in them.
type Report []Result

// Count returns how many cases ended so.
func (r Report) Count(o Outcome) int {
	n := 0
	for i := range r {
		if r[i].Outcome == o {
			n++
		}
	}
	return n
}

// sorted orders cases by NIP, and leaves those of a NIP as they stand.
func sorted(cases []Case) []Case {
	cases = slices.Clone(cases)
	slices.SortStableFunc(cases, func(a, b Case) int { return cmp.Compare(a.NIP, b.NIP) })
	return cases
}
