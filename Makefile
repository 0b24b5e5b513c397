# Apiary: every target is a line or two; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export PATH := $(CURDIR)/.bin:$(PATH)
MODULES  := proto pkg services tools
SERVICES := gateway ingest fanout search audit workflow media
# Restamped only when the pinned tools change, so that nobody builds them twice.
TOOLS_SUM   := $(firstword $(shell sha256sum tools/dev/go.sum 2>/dev/null || shasum -a 256 tools/dev/go.sum))
TOOLS_STAMP := .bin/.tools-$(TOOLS_SUM)
CHART_SUM   := $(firstword $(shell sha256sum tools/dev/chart/go.sum 2>/dev/null || shasum -a 256 tools/dev/chart/go.sum))
CHART_STAMP := .bin/.chart-tools-$(CHART_SUM)
# The release whose API the chart is checked against.
KUBERNETES  := v1.37.2

PORT     ?= 3000
GATEWAYS ?= 2
INGESTS  ?= 2
FANOUTS  ?= 2
SEARCHES ?= 2
DATA     ?=
ARGS     ?=
MB       ?= 200
SECONDS ?= 60
ONLY     ?=
FUZZTIME ?= 20s
BENCHTIME ?= 1x
# Arithmetic on curve points shares nothing between goroutines, and takes thirty times as long when the race detector watches it:
# most of what the tests would do is sign and verify.
export RACE := -race -gcflags=github.com/decred/dcrd/...=-race=false -gcflags=github.com/btcsuite/btcd/...=-race=false
# Not every shell expands ~ after DATA=.
data_flag = $(if $(DATA),--data "$(patsubst ~/%,$(HOME)/%,$(DATA))")

.PHONY: help up cluster build test test-go test-short interop conformance conformance-local walkthrough bench hostile chaos bench-fanout bench-memory peers bench-go fuzz-short tools gen fmt lint proto-check chart-tools chart-test chart-golden kube-schemas tidy check doc clean ci postgres go nats-server gotestsum

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 19

up: postgres ## Build and run everything in one process (PORT, DATA, ARGS)
	@$(MAKE) -s bin/apiary
	@exec bin/apiary serve --listen 127.0.0.1:$(PORT) $(data_flag) $(ARGS)

cluster: postgres build nats-server ## Run the split topology here (GATEWAYS, INGESTS, FANOUTS, SEARCHES, PORT, DATA, ARGS)
	@exec bin/cluster --bin bin --nats-server .bin/nats-server --port $(PORT) --gateways $(GATEWAYS) --ingests $(INGESTS) \
		--fanouts $(FANOUTS) --searches $(SEARCHES) $(data_flag) $(ARGS)

build: go ## Build all binaries into bin/
	@mkdir -p bin
	@[ -e bin/cluster ] || echo "building bin/ (the first time takes a few minutes)"
	@go build -trimpath -o bin/ $(foreach s,$(SERVICES) apiary,./services/$(s)/cmd/$(s)) ./tools/cluster ./tools/chaos ./tools/bench ./tools/pgtmp ./tools/confdoc

bin/%: FORCE
	@mkdir -p bin
	@[ -e $@ ] || echo "building $@ (the first time takes a few minutes)"
	@go build -trimpath -o $@ ./services/$*/cmd/$*
.PHONY: FORCE
FORCE:

go:
	@command -v go >/dev/null || { echo "go is not on the PATH: install Go $(word 2,$(shell grep '^go ' go.work)) or newer, see https://go.dev/dl/" >&2; exit 1; }

postgres: go ## Get Postgres from the system's packages if there is none
	@tools/setup/postgres.sh

test: postgres ## Run every test: Go with -race -shuffle=on, then the interop suite
	@tools/interop/run.sh --check
	@$(MAKE) test-go
	@$(MAKE) interop

test-go: postgres nats-server gotestsum ## Run the Go tests on a throw-away Postgres
	@go run ./tools/pgtmp -- gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg -- $(RACE) -shuffle=on $(ARGS) work

test-short: postgres nats-server ## Run the Go tests without the race detector
	@go run ./tools/pgtmp -- go test -short $(ARGS) work

interop: postgres build nats-server ## Run nostr-tools, NDK and go-nostr against both topologies
	@tools/interop/run.sh

conformance: go ## Hold any relay to the NIPs (URL=ws://…)
	@go run ./services/conformance/cmd/conformance run $(ARGS) $(or $(URL),$(error say which relay: make conformance URL=ws://localhost:3000))

conformance-local: postgres build nats-server ## Hold the all-in-one and a split cluster to the NIPs; starts them itself
	@go run ./services/conformance/cmd/conformance local $(ARGS)

walkthrough: postgres ## Type what services/docs/walkthrough.md shows and compare what comes out
	@$(MAKE) -s bin/apiary
	@go run ./tools/walk --bin bin services/docs/walkthrough.md

bench: postgres build ## Measure this machine: a table, then one RESULT line
	@bin/bench $(ARGS)

hostile: postgres build ## Attack a relay with MB megabytes and measure what others notice (MB, ARGS)
	@bin/bench hostile -mb $(MB) $(ARGS)

bench-fanout: postgres build nats-server peers ## Measure live delivery side by side with khatru, rely and Centrifugo, and with 1 to 3 fan-out nodes (ARGS)
	@command -v taskset >/dev/null || { echo "taskset is not on the PATH: install util-linux" >&2; exit 1; }
	@taskset --cpu-list 1 bin/bench fanout $(ARGS)

bench-memory: postgres build nats-server ## Measure the memory of 10,000 idle connections, in one process and split (ARGS)
	@bin/bench memory $(ARGS)

CENTRIFUGO := v6.9.1
peers: go ## Build the servers that bench-fanout compares with into .bin/peers
	@mkdir -p .bin/peers
	@[ -e .bin/peers/khatru ] || echo "building khatru, rely and Centrifugo (once; several minutes)"
	@GOWORK=off GOFLAGS=-buildvcs=false GOBIN=$(CURDIR)/.bin/peers go -C tools/peers install ./khatru ./rely
	@[ -e .bin/peers/.centrifugo-$(CENTRIFUGO) ] || { GOWORK=off GOFLAGS=-buildvcs=false GOBIN=$(CURDIR)/.bin/peers \
		go install github.com/centrifugal/centrifugo/v6@$(CENTRIFUGO) && touch .bin/peers/.centrifugo-$(CENTRIFUGO); }

chaos: postgres build nats-server ## Break a cluster while clients use it and check what they get (SECONDS each, ONLY=names, ARGS)
	@bin/chaos --bin bin --nats-server .bin/nats-server --seconds $(SECONDS) --only '$(ONLY)' $(ARGS)

bench-go: postgres ## Run the Go benchmarks (BENCHTIME; ARGS=-short with small data)
	@go run ./tools/pgtmp -- go test -run '^$$' -bench . -benchtime=$(BENCHTIME) $(ARGS) \
		$$(grep -rl --include='*_test.go' '^func Benchmark' $(MODULES) | xargs -n1 dirname | sort -u | sed 's|^|./|')

fuzz-short: go ## Run every fuzz target for FUZZTIME
	@tools/setup/fuzz.sh $(FUZZTIME)

tools: $(TOOLS_STAMP) ## Build the pinned developer tools into .bin/

# The two that running and testing need are built alone, unless all are there: nobody waits for linters to try a cluster.
define tool
	@[ -e $(TOOLS_STAMP) ] || [ -e .bin/.$@-$(TOOLS_SUM) ] || { mkdir -p .bin && echo "building the pinned $@ (once)" && \
		GOWORK=off GOFLAGS=-buildvcs=false GOBIN=$(CURDIR)/.bin go -C tools/dev install $(1) && touch .bin/.$@-$(TOOLS_SUM); }
endef
nats-server: go
	$(call tool,github.com/nats-io/nats-server/v2)
gotestsum: go
	$(call tool,gotest.tools/gotestsum)

$(TOOLS_STAMP): | go
	@mkdir -p .bin && rm -f .bin/.tools-*
	@echo "building the pinned developer tools (once; several minutes)"
	@GOWORK=off GOFLAGS=-buildvcs=false GOBIN=$(CURDIR)/.bin go -C tools/dev install tool
	@touch $@

chart-tools: $(CHART_STAMP) ## Build helm, helm-unittest and kubeconform into .bin/
$(CHART_STAMP): | go
	@mkdir -p .bin && rm -f .bin/.chart-tools-*
	@echo "building the pinned tools for charts (once; several minutes)"
	@GOWORK=off GOFLAGS=-buildvcs=false GOBIN=$(CURDIR)/.bin go -C tools/dev/chart install tool
	@touch $@

chart-test: $(CHART_STAMP) ## Check the chart without a cluster: lint, renders, refusals, unit tests, the API's schemas
	@tools/setup/chart-test.sh

chart-golden: $(CHART_STAMP) ## Write the chart's golden renders anew, and check it
	@tools/setup/chart-test.sh --update

kube-schemas: go ## Write the schemas of the Kubernetes objects that the chart makes
	@dir=$$(GOWORK=off GOFLAGS= go mod download -json k8s.io/kubernetes@$(KUBERNETES) | sed -n 's/^\t"Dir": "\(.*\)",*$$/\1/p') && rm -rf tools/kubeschema/schemas && \
		go run ./tools/kubeschema -swagger "$$dir/api/openapi-spec/swagger.json" -o tools/kubeschema/schemas ConfigMap Deployment HorizontalPodAutoscaler \
		Ingress Job NetworkPolicy Pod PodDisruptionBudget Secret Service ServiceAccount StatefulSet

gen: $(TOOLS_STAMP) ## Regenerate what is generated: protobuf code and reference pages
	@cd proto && rm -rf gen && buf generate
	@$(MAKE) doc

doc: build ## Regenerate services/docs/configuration.md and kinds.md, and the chart's README and schema
	@bin/confdoc --bin bin -o services/docs/configuration.md
	@go run ./tools/kinddoc -o services/docs/kinds.md
	@go run ./tools/chartdoc

fmt: $(TOOLS_STAMP) ## Format Go and protobuf
	@golangci-lint fmt $(foreach m,$(filter-out proto,$(MODULES)),./$(m)/...)
	@cd proto && buf format -w

proto-check: $(TOOLS_STAMP) ## Lint the contract and refuse breaking changes
	@cd proto && buf format --diff --exit-code && buf lint
	@if git rev-parse -q --verify origin/main >/dev/null && git cat-file -e origin/main:proto/buf.yaml 2>/dev/null; then \
		cd proto && buf breaking --against '../.git#ref=origin/main,subdir=proto'; fi

lint: $(TOOLS_STAMP) proto-check ## Lint all modules; go vet's analyses are among the linters
	@golangci-lint run $(foreach m,$(MODULES),./$(m)/...)

tidy: ## Tidy every module and the workspace
	@go work sync
	@for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy); done

check: ## Build each module alone, so that the go.mod files are honest
	@for m in $(MODULES); do (cd $$m && GOWORK=off go build ./...); done
	@for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy -diff); done

clean: ## Remove what was built
	@rm -rf bin coverage.out

ci: ## What .ci/run runs
	@.ci/run
