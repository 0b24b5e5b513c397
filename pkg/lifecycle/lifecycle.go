// Package lifecycle starts and stops the parts of a process in one order, the same for every binary.
//
// A part is a Service. A Group runs several as one Service, so groups nest:
//
//	          Run called          every ready()            ctx done, or a member fails
//	[new] ───────────────▶ [starting] ─────────▶ [running] ──────────────────────────▶ [draining]
//	                           │ ctx done, or a member fails                                │
//	                           └──────────────────────────────▶ [stopping] ◀────────────────┘
//	                                                                │ every Run returned
//	                                                                ▼
//	                                                             [done]
//
// Starting goes in the order of addition, one member at a time. Draining and stopping go in reverse;
// a member's context is cancelled only after every member added later has returned. A member's
// context is never cancelled by the parent context directly, because then a pool would close under
// the services that still use it.
//
// The Run goroutine of a Group owns all its state except the member list (fixed once Run is called)
// and the drain flag (a sync.Once, because a parent may call Drain while Run is going on). The package
// opens nothing, logs little and never exits the process.
package lifecycle

import "context"

// Service is a part of a process.
type Service interface {
	// Run blocks. It calls ready once it can do its work (never more than once is needed, more is
	// harmless), returns nil after a clean stop caused by ctx, and an error when it cannot go on. It
	// waits for every goroutine it starts. A return before ctx is done counts as a failure, also when
	// it is nil.
	Run(ctx context.Context, ready func()) error
}

// Drainer is a Service that can leave gently.
type Drainer interface {
	// Drain stops taking new work and finishes what is in hand, at the latest when ctx ends. It is
	// called at most once, while Run is still going on, before Run's context is cancelled.
	Drain(ctx context.Context) error
}

// Func makes a Service of a function.
type Func func(ctx context.Context, ready func()) error

// Run calls f.
func (f Func) Run(ctx context.Context, ready func()) error { return f(ctx, ready) }

// Task is a Service that does one thing before the members added later start, and is ready when it
// is done: a migration, for example.
func Task(do func(ctx context.Context) error) Service {
	return Func(func(ctx context.Context, ready func()) error {
		if err := do(ctx); err != nil {
			return err
		}
		ready()
		<-ctx.Done()
		return nil
	})
}

// OnStop is a Service that is ready at once and calls fn when its turn to stop comes. Add it before
// what uses the thing that fn closes. fn must return promptly; it is waited for.
func OnStop(fn func() error) Service {
	return Func(func(ctx context.Context, ready func()) error {
		ready()
		<-ctx.Done()
		return fn()
	})
}
