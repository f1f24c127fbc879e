# Targets for people; .ci/run calls `make ci`. All tools are pinned in tools/go.mod.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c

MODULES    := . test bench
BIN        := bin
LINT       := $(BIN)/golangci-lint
FUZZTIME   ?= 10s
BENCHTIME  ?= 1s
COUNT      ?= 1
PROTO_GO   := go run ./internal/protogen

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build every package and bin/gameserver
	go build ./...
	go build -o $(BIN)/gameserver ./cmd/gameserver

test: ## go test ./... in this module and the nested ones; needs Go only
	@for m in $(MODULES); do echo "== go test ./... in $$m"; (cd $$m && go test ./...); done

race: ## the same under the race detector, with invariants (poisoned buffers)
	go test -race -tags invariants ./...
	cd test && go test -race ./...

lint: $(LINT) ## formatting, vet, golangci-lint, go.mod tidy, generated code up to date
	$(LINT) fmt --diff
	$(LINT) run
	go vet -tags invariants ./...
	for m in $(MODULES); do (cd $$m && go vet ./... && go mod tidy -diff); done
	$(MAKE) proto-check

$(LINT): tools/go.mod
	cd tools && go build -o ../$(LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint

proto: ## compile the .proto files to Go
	$(PROTO_GO) -I proto zgame/options.proto zgame/v1/wire.proto
	$(PROTO_GO) -I proto,examples/chat/proto chat/chat.proto

proto-check: ## fail when generated Go differs from the .proto files
	$(PROTO_GO) -check -I proto zgame/options.proto zgame/v1/wire.proto
	$(PROTO_GO) -check -I proto,examples/chat/proto chat/chat.proto

bench: ## benchmarks, next to their baselines (BENCHTIME=1s COUNT=1)
	go test -run '^$$' -bench . -benchtime $(BENCHTIME) -count $(COUNT) ./...

bench-smoke: ## every benchmark once
	go test -run '^$$' -bench . -benchtime 1x ./...

clean: ## remove what was built
	rm -rf $(BIN) .zgame

ci: ## everything CI runs; what needs the browser or Node is installed by .ci/run
	$(MAKE) build
	$(MAKE) test
	$(MAKE) race
	$(MAKE) lint
	$(MAKE) bench-smoke

.PHONY: help build test race lint proto proto-check bench bench-smoke clean ci
