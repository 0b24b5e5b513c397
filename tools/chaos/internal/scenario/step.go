package scenario

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Action is what a step does.
type Action string

// The actions; the package says what each does.
const (
	Kill   Action = "kill"
	Pause  Action = "pause"
	Roll   Action = "roll"
	Add    Action = "add"
	Remove Action = "remove"
	Cut    Action = "cut"
	Hold   Action = "hold"
)

// Step is something done at some time.
type Step struct {
	// At is when it is done first; Every by default. Every is the time from then on to the next; 0 is once.
	At    time.Duration `yaml:"at"`
	Every time.Duration `yaml:"every"`
	// For is how long Pause, Cut and Hold last.
	For time.Duration `yaml:"for"`

	// One of these is set.
	Kill   Target `yaml:"kill"`
	Pause  Target `yaml:"pause"`
	Roll   Target `yaml:"roll"`
	Add    Target `yaml:"add"`
	Remove Target `yaml:"remove"`
	Cut    Link   `yaml:"cut"`
	Hold   Link   `yaml:"hold"`
}

// leastEvery bounds how often a step is done.
const leastEvery = 100 * time.Millisecond

// services are those that a target may name.
var services = []string{"gateway", "ingest", "fanout", "search", "audit", "workflow", "media", "nats", "postgres"}

// Target is one process or several.
type Target struct {
	// Service is always set. Process is set when it is just that one.
	Service, Process string
	// Next says that it is one of the service's at a time, in turn.
	Next bool
}

var targetPattern = regexp.MustCompile(`^(next )?([a-z]+)(-[1-9][0-9]?)?$`)

// UnmarshalText reads a target.
func (t *Target) UnmarshalText(text []byte) error {
	m := targetPattern.FindStringSubmatch(string(text))
	if m == nil || !slices.Contains(services, m[2]) || (m[1] != "" && m[3] != "") {
		return fmt.Errorf("%q is no target: it is a service (%s), its next process (next fanout), or a process (fanout-1)",
			text, strings.Join(services, ", "))
	}
	*t = Target{Service: m[2], Next: m[1] != ""}
	if m[3] != "" || t.Service == "nats" || t.Service == "postgres" {
		t.Process, t.Next = m[2]+m[3], false
	}
	return nil
}

// String returns the target as it is written.
func (t Target) String() string {
	switch {
	case t.Process != "":
		return t.Process
	case t.Next:
		return "next " + t.Service
	}
	return t.Service
}

// Link is the connections that some processes make to others.
type Link struct{ From, To Target }

// UnmarshalText reads a link.
func (l *Link) UnmarshalText(text []byte) error {
	from, to, ok := strings.Cut(string(text), " to ")
	if !ok {
		return fmt.Errorf("%q is no link: it is who connects, \" to \", and to whom", text)
	}
	return errors.Join(l.From.UnmarshalText([]byte(from)), l.To.UnmarshalText([]byte(to)))
}

// String returns the link as it is written.
func (l Link) String() string { return l.From.String() + " to " + l.To.String() }

// Action returns what the step does.
func (s *Step) Action() Action { return s.actions()[0] }

// Target returns to what, unless it is a link.
func (s *Step) Target() Target {
	for _, t := range []Target{s.Kill, s.Pause, s.Roll, s.Add, s.Remove} {
		if t != (Target{}) {
			return t
		}
	}
	return Target{}
}

// Link returns to which link.
func (s *Step) Link() Link {
	if s.Cut != (Link{}) {
		return s.Cut
	}
	return s.Hold
}

// String says what the step does, in a few words.
func (s *Step) String() string {
	if s.Link() != (Link{}) {
		return string(s.Action()) + " " + s.Link().String()
	}
	return string(s.Action()) + " " + s.Target().String()
}

func (s *Step) actions() []Action {
	var set []Action
	for _, of := range []struct {
		action Action
		set    bool
	}{
		{Kill, s.Kill != Target{}},
		{Pause, s.Pause != Target{}},
		{Roll, s.Roll != Target{}},
		{Add, s.Add != Target{}},
		{Remove, s.Remove != Target{}},
		{Cut, s.Cut != Link{}},
		{Hold, s.Hold != Link{}},
	} {
		if of.set {
			set = append(set, of.action)
		}
	}
	return set
}

func (s *Step) check() error {
	set := s.actions()
	if len(set) != 1 {
		return errors.New("it must say one thing to do: kill, pause, roll, add, remove, cut or hold")
	}
	lasting := set[0] == Pause || set[0] == Cut || set[0] == Hold
	switch {
	case s.At < 0 || s.Every < 0 || s.At+s.Every == 0:
		return errors.New("it must say when: at, every or both")
	case s.Every > 0 && s.Every < leastEvery:
		return fmt.Errorf("it may be done every %s, not more often", leastEvery)
	case lasting && s.For <= 0:
		return fmt.Errorf("%s must say for how long", set[0])
	case !lasting && s.For != 0:
		return fmt.Errorf("%s takes no time", set[0])
	case s.Every > 0 && s.For >= s.Every:
		return errors.New("it must end before it is done again")
	case s.Target().Service == "postgres" && set[0] != Kill:
		return errors.New("postgres can only be killed")
	}
	return nil
}

// Times returns when the step is done in a run of some length: at times before its end.
func (s *Step) Times(length time.Duration) []time.Duration {
	first := s.At
	if first == 0 {
		first = s.Every
	}
	var times []time.Duration
	for at := first; at < length; at += s.Every {
		times = append(times, at)
		if s.Every == 0 {
			break
		}
	}
	return times
}
