// Package scenarios holds the scenarios that `make chaos` runs, one file each; package scenario says what is in
// them. Times suit runs of a minute: a shorter run does what comes before its end.
package scenarios

import "embed"

// Files are the scenarios.
//
//go:embed *.yaml
var Files embed.FS
