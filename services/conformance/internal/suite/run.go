package suite

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// caseTime bounds one case, whatever the relay does.
const caseTime = 5 * time.Minute

// Run runs the cases against the relay, and done for each as soon as it has ended, one at a time.
func Run(ctx context.Context, r *Relay, cases []Case, o Options, done func(Result)) Report {
	var chosen []Case
	for _, c := range sorted(cases) {
		if o.chooses(&c) {
			chosen = append(chosen, c)
		}
	}
	report := make(Report, len(chosen))
	slots := make(chan struct{}, max(o.Parallel, 1))
	var running sync.WaitGroup
	var mu sync.Mutex
	for i, c := range chosen {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			result := one(ctx, r, c, &o)
			mu.Lock()
			defer mu.Unlock()
			report[i] = result
			if done != nil {
				done(result)
			}
		})
	}
	running.Wait()
	return report
}

func (o *Options) chooses(c *Case) bool {
	for _, prefix := range o.Only {
		if strings.HasPrefix(c.Name(), prefix) {
			return true
		}
	}
	return len(o.Only) == 0
}

// one runs a case in a goroutine that the case may end.
func one(ctx context.Context, r *Relay, c Case, o *Options) Result {
	if missing, ok := r.claims(o, c.Needs); !ok {
		return Result{Case: c, Outcome: NotClaimed, Why: fmt.Sprintf("NIP-%02d is not among the supported NIPs", missing)}
	}
	ctx, cancel := context.WithTimeout(ctx, caseTime)
	defer cancel()
	t := &T{ctx: ctx, relay: r, opts: o, result: Result{Case: c}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer t.close()
		defer func() {
			if p := recover(); p != nil {
				t.result.Outcome, t.result.Expected = Failed, "the case runs to its end"
				t.result.Saw = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		c.Run(t)
		t.checkFrames()
	}()
	<-ended
	if t.result.Outcome == Failed && !c.Required && !t.unreachable {
		t.result.Outcome = NotClaimed
		t.result.Why = fmt.Sprintf("optional; expected: %s; saw: %s", t.result.Expected, t.result.Saw)
	}
	return t.result
}
