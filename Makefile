# Everything a person or CI runs. `make help` explains each target.
# Fetched and built things live in the user's cache folder, outside the clone.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export GOTOOLCHAIN := local

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/skipper
LOCAL := $(CACHE)/bin/skipper-local
# local: a node on this machine. existing: the cluster of the current kubeconfig.
CLUSTER ?= local
LOCAL_FLAGS := --cluster $(CLUSTER) $(if $(IMAGE_PREFIX),--image-prefix $(IMAGE_PREFIX)) $(if $(IMAGE_TAG),--image-tag $(IMAGE_TAG))
GO_PACKAGES ?= ./...
# Models that live too long for the race detector (package test/race): it runs
# their short form, and these run again without it.
LONG_PACKAGES := ./controller/withdraw ./test/sim
FUZZTIME ?= 1m
# In executions, for Go counts the end of a time as a failure now and then (golang/go#75804).
SMOKETIME ?= 20000x
SOAK_TIME ?= 10m

.PHONY: help up down status test test-unit test-e2e soak changes fuzz fuzz-smoke check lint bench images cli generate manifests licences local-tool

help: ## Explain the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' Makefile

up: local-tool ## Start a local Kubernetes node with Skipper and an example function (as root); CLUSTER=existing deploys to the current kubeconfig's cluster
	@$(LOCAL) up $(LOCAL_FLAGS)

down: local-tool ## Stop it and leave nothing behind but the cache
	@$(LOCAL) down

status: local-tool ## Say how each part of the local node is
	@$(LOCAL) status

test: local-tool ## Run all tests: unit and pipeline with the race detector, then end to end on the real cluster
	@$(LOCAL) build
	@$(MAKE) --no-print-directory test-unit
	@$(MAKE) --no-print-directory fuzz-smoke
	@$(MAKE) --no-print-directory test-e2e

test-unit: local-tool ## Run unit and pipeline tests (race detector on, long models without it; the real Envoy checks its configuration)
	SKIPPER_ENVOY="$$($(LOCAL) envoy)" go test -race -shuffle=on -timeout 30m $(GO_PACKAGES)
	go test -timeout 30m $(LONG_PACKAGES)
	cd deploy/monitoring && go test ./...
	cd deploy/local && go test -shuffle=on ./...

# One package after the other, because they share the node, which is stopped
# again if this target started it.
test-e2e: local-tool ## Run the end-to-end tests through `make up`
	@was_up=0; if $(LOCAL) status >/dev/null 2>&1; then was_up=1; fi; \
	$(MAKE) --no-print-directory up; rc=0; \
	export KUBECONFIG="$$($(LOCAL) kubeconfig)" PATH="$(CACHE)/bin:$$PATH"; \
	$(LOCAL) browser && go test -tags e2e -p 1 -count=1 -run 'Browser|Story' ./test/browser ./controller/web ./test/story || rc=1; \
	SKIPPER_TEST_KUBECONFIG="$$KUBECONFIG" go test -count=1 -run Cluster ./controller/claim || rc=1; \
	go test -tags e2e -p 1 -count=1 -timeout 40m ./test/e2e ./test/multi ./test/soak || rc=1; \
	if [ $$was_up = 0 ]; then $(MAKE) --no-print-directory down || rc=1; fi; \
	exit $$rc

soak: up ## Try for ten minutes to make one of 300,000 requests reach another tenant's pod, then kill around 2,000 oneshot requests, then simulate 10,000 days; SOAK_FLAGS='-soak.seed=2'
	KUBECONFIG="$$($(LOCAL) kubeconfig)" go test -tags e2e -count=1 -timeout 4h -v ./test/soak -run 'TestIsolation|TestOneshots' \
	  -soak.time=$(SOAK_TIME) -soak.least=300000 -soak.oneshots=2000 $(SOAK_FLAGS)
	go test -count=1 -timeout 4h -v ./test/sim -run TestSchedules -sim.schedules=10000

changes: up ## Upgrade from an earlier release and back, in both orders, and replace all keys, under load: about four minutes
	KUBECONFIG="$$($(LOCAL) kubeconfig)" go test -tags e2e -count=1 -timeout 1h -v ./test/e2e -run TestChangesUnderLoad

# One target for each kind of input that comes from outside: headers, their JSON and
# tokens, ext_proc messages, xDS and load report requests, heartbeats, annotations,
# the API server's replies. The rest has its corpora run by test-unit, and `make fuzz`.
FUZZ_SMOKE := proto/fn:FuzzParse proto/signed:FuzzVerify extproc/header:FuzzParse extproc/wire:FuzzParse extproc/stream:FuzzStream \
  xds/server:FuzzRequest xds/loads:FuzzTake controller/server:FuzzHeartbeat controller/pool:FuzzFromPod controller/claim:FuzzReply

fuzz-smoke: ## Run the most exposed fuzz targets for a few seconds (SMOKETIME, 20000x) each
	@for t in $(FUZZ_SMOKE); do \
	  out=$$(go test -run '^$$' -fuzz "^$${t#*:}\$$" -fuzztime $(SMOKETIME) ./$${t%:*} 2>&1) || { echo "$$out"; exit 1; }; \
	  tail -1 <<<"$$out"; \
	done

fuzz: ## Run every fuzz target for FUZZTIME (1m)
	@grep -rlE '^func Fuzz' --include='*_test.go' $(wildcard proto xds controller extproc function envoy cmd) | while read -r f; do \
	  for t in $$(grep -oE '^func Fuzz[A-Za-z0-9_]+' $$f | cut -c6-); do \
	    echo "== $$t in $$(dirname $$f)"; go test -run '^$$' -fuzz "^$$t\$$" -fuzztime $(FUZZTIME) ./$$(dirname $$f); \
	  done; done

check: lint ## Do what a reviewer would otherwise do by eye: format, lint, tidy, generated code up to date
	go mod tidy -diff
	cd deploy/local && go mod tidy -diff && go vet ./...
	cd deploy/monitoring && go mod tidy -diff && go vet ./...
	@$(MAKE) --no-print-directory generate manifests
	git diff --exit-code -- proto deploy/base deploy/function-namespace deploy/helm
	cd .ci/licences && go mod tidy -diff && go test ./... && go run . --root ../.. --check
	.ci/vuln

manifests: local-tool ## Write the Kustomize folders from the Helm chart
	@$(LOCAL) manifests

licences: ## List the licences of what the programs contain, in docs/licences.md
	cd .ci/licences && go run . --root ../..

lint: ## Run the linters of .golangci.yml
	go vet ./... && go vet -tags e2e ./test/...
	go tool -modfile=.ci/lint/go.mod golangci-lint run --build-tags e2e
	go tool -modfile=.ci/lint/go.mod golangci-lint fmt --diff

bench: up ## Measure against the rivals of docs/benchmarks.md, on the local cluster, and write the tables there
	SKIPPER_ENVOY="$$($(LOCAL) envoy)" KUBECONFIG="$$($(LOCAL) kubeconfig)" go run ./test/bench

images: local-tool ## Build the container images and load them into the local node
	@$(LOCAL) images

cli: ## Build the operator's command line, skipper, which is a plugin of kubectl too
	@mkdir -p $(CACHE)/bin && CGO_ENABLED=0 go build -trimpath -o $(CACHE)/bin/skipper ./cmd/skipper
	@ln -sf skipper $(CACHE)/bin/kubectl-skipper
	@echo "built $(CACHE)/bin/skipper, and kubectl-skipper beside it"

generate: ## Regenerate the gRPC code from proto/skipper.proto
	cd proto && go tool -modfile=../.ci/tools/go.mod buf lint && go tool -modfile=../.ci/tools/go.mod buf generate

local-tool:
	@mkdir -p $(dir $(LOCAL)) && CGO_ENABLED=0 go build -C deploy/local -o $(LOCAL) .
