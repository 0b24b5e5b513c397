#!/usr/bin/env bash
# Runs the interop suite against both topologies, each started from bin/ on fresh data and free ports:
# the all-in-one, then the split cluster with two of everything, where tests publish through one gateway
# and listen on another. Fails, rather than skips, when Node or npm is missing.
#
# usage: run.sh [--check]     --check only looks for what the suite needs
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD

for tool in node npm go; do
	command -v "$tool" >/dev/null || { echo "the interop suite needs $tool: install Node 20 or newer with npm, and Go" >&2; exit 1; }
done
node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || { echo "the interop suite needs Node 20 or newer, not $(node --version)" >&2; exit 1; }
[ "${1-}" != --check ] || exit 0

data=$(mktemp -d)
chmod 755 "$data" # Postgres, which refuses root, runs as another user and has to reach its directory
server=
cleanup() {
	if [ -n "$server" ]; then
		kill -INT "$server" 2>/dev/null && wait "$server" || true
	fi
	rm -rf "$data"
}
trap cleanup EXIT

free_port() {
	node -e 'const s=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})'
}

# start NAME COMMAND...: runs it in the background and waits for the line that says it is ready.
start() {
	local name=$1
	shift
	"$@" >"$data/$name.log" 2>&1 &
	server=$!
	for _ in $(seq 600); do
		grep -q '^ready' "$data/$name.log" && return
		kill -0 "$server" 2>/dev/null || break
		sleep 0.1
	done
	echo "$name did not become ready:" >&2
	cat "$data/$name.log" >&2
	exit 1
}

stop() {
	kill -INT "$server"
	if ! wait "$server"; then
		echo "$1 did not end cleanly:" >&2
		cat "$data/$1.log" >&2
		exit 1
	fi
	server=
}

run() { # RELAYS
	APIARY_RELAYS=$1 npm --prefix "$root/tools/interop" test
	(cd tools/interop && APIARY_RELAYS=$1 GOWORK=off go test -count=1 ./...)
}

(cd tools/interop && npm ci --silent)

echo "== interop: all-in-one"
port=$(free_port)
start all-in-one bin/apiary serve --listen "127.0.0.1:$port" --admin.listen "127.0.0.1:$(free_port)" --data "$data/all-in-one"
run "ws://localhost:$port"
stop all-in-one

echo "== interop: split cluster"
port=$(free_port)
start cluster bin/cluster --bin bin --nats-server .bin/nats-server --port "$port" --data "$data/cluster"
gateways=$(node -e '
	const state = JSON.parse(require("fs").readFileSync(process.argv[1]))
	console.log(state.processes.filter((p) => p.service === "gateway").map((p) => "ws://localhost:" + p.address.split(":").pop()).join(","))
' "$data/cluster/cluster.json")
run "$gateways"
APIARY_RELAYS="ws://localhost:$port" npm --prefix "$root/tools/interop" test -- nostr-tools.test.mjs
node tools/interop/chat.mjs "ws://localhost:$port"
stop cluster
