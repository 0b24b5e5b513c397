#!/usr/bin/env bash
# Runs every fuzz target for the given time each: `go test -fuzz` takes one target of one package at a time.
set -euo pipefail
cd "$(dirname "$0")/../.."
time=${1:-20s}
grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' pkg services | while read -r file; do
	dir=$(dirname "$file")
	grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$file" | sed 's/^func //' | while read -r target; do
		echo "== $dir $target"
		go test "./$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1s # else a minute for each input of interest
	done
done
