#!/usr/bin/env bash
# chart-test.sh [--update]: everything that is known of the chart without a cluster. --update writes the golden renders anew.
set -euo pipefail
cd "$(dirname "$0")/../.."
chart=charts/apiary
kube=1.37.0
passed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
	echo "chart-test: $*" >&2
	exit 1
}
render() { helm template apiary "$chart" --namespace apiary --kube-version "$kube" "$@"; }
# conforms VALUES RENDER: the API takes each object of what VALUES make, and the templates left no empty line.
conforms() {
	kubeconform -strict -summary -skip HTTPRoute,ServiceMonitor -schema-location 'tools/kubeschema/schemas/{{.ResourceKind}}{{.KindSuffix}}.json' "$2" ||
		fail "$1: an object is not one of Kubernetes $kube"
	if grep -nE '^[[:space:]]*$' "$2"; then fail "$1: the render has empty lines"; fi
}

for values in "$chart"/ci/*-values.yaml; do
	name=$(basename "$values" -values.yaml)
	golden=$chart/testdata/$name.golden.yaml
	helm lint --strict --quiet --kube-version "$kube" "$chart" -f "$values"
	render -f "$values" >"$work/first.yaml"
	render -f "$values" >"$work/second.yaml"
	cmp "$work/first.yaml" "$work/second.yaml" || fail "$values: two renders differ"
	if [ "${1:-}" = --update ]; then cp "$work/first.yaml" "$golden"; fi
	diff -u "$golden" "$work/first.yaml" || fail "$values: the render is not what $golden says; if it should be, run make chart-golden"
	conforms "$values" "$golden"
	passed=$((passed + 1))
done

# Unusual values, each with what it was found to break or could.
for values in "$chart"/testdata/accepted/*.yaml; do
	render -f "$values" >"$work/accepted.yaml" || fail "$values was refused"
	conforms "$values" "$work/accepted.yaml"
	passed=$((passed + 1))
done

render -f "$chart/testdata/base.yaml" >"$work/base.yaml"
for values in "$chart"/testdata/refused/*.yaml; do
	wants=$(sed -n '1s/^# wants: //p' "$values")
	[ -n "$wants" ] || fail "$values does not say what helm should"
	if render -f "$chart/testdata/base.yaml" -f "$values" >"$work/out" 2>&1; then fail "$values was not refused"; fi
	grep -qF -- "$wants" "$work/out" || fail "$values: helm does not say \"$wants\" but: $(cat "$work/out")"
	passed=$((passed + 1))
done

helm-unittest --strict "$chart"
echo "$passed passed, 0 failed"
