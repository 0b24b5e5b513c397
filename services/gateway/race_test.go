//go:build race

package gateway_test

// underRace says that the race detector watches: what is about many connections takes ten times the processor time then.
const underRace = true
