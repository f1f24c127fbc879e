# Targets for people; .ci/run calls `make ci`. All tools are pinned in tools/go.mod.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c

MODULES    := . test bench deploy
BIN        := bin
LINT       := $(BIN)/golangci-lint
BENCHTIME  ?= 1s
COUNT      ?= 1
CHAOS      ?= -chaos.rounds=10 -chaos.race
PROTO_GO   := go run ./cmd/protogen
# test/ builds and runs what is in the module beside it, documents too; the cache of test results does not see that change.
FRESH      = $$(test $$m = test && echo -count=1)

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build every package and bin/gameserver
	go build ./...
	go build -o $(BIN)/gameserver ./cmd/gameserver

cross: ## the library and the binary build for macOS and Windows too
	GOOS=darwin GOARCH=arm64 go build ./...
	GOOS=windows GOARCH=amd64 go build ./...

test: ## go test ./... in this module and the nested ones; needs Go only
	@for m in $(MODULES); do echo "== go test ./... in $$m"; (cd $$m && go test $(FRESH) ./...); done

race: ## the same under the race detector, with invariants (poisoned buffers)
	go test -race -tags invariants ./...
	cd test && go test -race -count=1 ./process # not ./ferret: FerretDB itself takes minutes under the detector; our driver is raced above

chaos: ## the long form of test/chaos: each fault ten times, nodes under the race detector (CHAOS='-chaos.seed=1 -chaos.rounds=3 -test.run=Moves')
	cd test && go test -count=1 -v -timeout 6h ./chaos -args $(CHAOS)

lint: $(LINT) ## formatting, vet, golangci-lint, go.mod tidy, generated code up to date
	$(LINT) fmt --diff
	$(LINT) run
	cd test && ../$(LINT) run
	cd bench && ../$(LINT) run
	cd deploy && ../$(LINT) run
	go vet -tags invariants ./...
	for m in $(MODULES); do (cd $$m && go vet ./... && go mod tidy -diff); done
	$(MAKE) proto-check

$(LINT): tools/go.mod
	cd tools && go build -o ../$(LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint

proto: ## compile the .proto files to Go
	$(PROTO_GO) -I proto zgame/options.proto zgame/v1/wire.proto zgame/store/v1/record.proto zgame/router/v1/handoff.proto zgame/user/v1/user.proto zgame/user/v1/presence.proto
	$(PROTO_GO) -I proto,examples/chat/proto chat/chat.proto
	$(PROTO_GO) -I proto,examples/friend/proto friend/friend.proto
	$(PROTO_GO) -I proto,examples/game/proto game/game.proto
	$(PROTO_GO) -I proto,bench/proto bench/bench.proto
	$(PROTO_GO) -I proto,test/chaos/proto chaos/chaos.proto

proto-check: ## fail when generated Go differs from the .proto files
	$(PROTO_GO) -check -I proto zgame/options.proto zgame/v1/wire.proto zgame/store/v1/record.proto zgame/router/v1/handoff.proto zgame/user/v1/user.proto zgame/user/v1/presence.proto
	$(PROTO_GO) -check -I proto,examples/chat/proto chat/chat.proto
	$(PROTO_GO) -check -I proto,examples/friend/proto friend/friend.proto
	$(PROTO_GO) -check -I proto,examples/game/proto game/game.proto
	$(PROTO_GO) -check -I proto,bench/proto bench/bench.proto
	$(PROTO_GO) -check -I proto,test/chaos/proto chaos/chaos.proto

web: ts-install ## rebuild generated TypeScript and the page bundles from their sources
	cd clients/ts && node scripts/gen.mjs && node scripts/bundle.mjs ../../examples/web/app.ts ../../examples/web/dist/ && node scripts/bundle.mjs ../../examples/game/web/app.ts ../../examples/game/web/dist/

web-check: ts-install ## TypeScript: type check, tests, and committed bundles equal to their sources
	cd clients/ts && node scripts/gen.mjs --check && npm run --silent typecheck && npm test --silent
	cd clients/ts && node scripts/bundle.mjs ../../examples/web/app.ts ../../examples/web/dist/ --check
	cd clients/ts && node scripts/bundle.mjs ../../examples/game/web/app.ts ../../examples/game/web/dist/ --check

ts-install:
	cd clients/ts && npm ci --no-audit --no-fund --silent

browser-test: build ## tabs at nodes that are drained and killed, in headless Chromium (Debian's package; CHROMIUM=path for another)
	go build -o $(BIN)/ ./examples/chat/cmd/chat ./examples/friend/cmd/friend
	cd test/browser && npm ci --no-audit --no-fund --silent
	cd test/browser && GAMESERVER=../../$(BIN)/gameserver npm test --silent

# Executions, not time: go test up to 1.26 may end a -fuzztime in seconds with "context deadline exceeded" (golang/go#75804). Each count is more than
# what 10 s, and for what a client may send to a gate 60 s, came to on two cores.
FUZZ := ./zgate:FuzzMessage:1000000 ./zclient:FuzzPackets:150000 ./zgate:FuzzWebsocket:60000 ./zgate:FuzzWebsocketDeflate:30000 ./zgate:FuzzInflate:100000 ./zmsg:FuzzFrame:150000 ./zmsg:FuzzEnvelope:160000 ./zmsg:FuzzPacket:150000 ./zmsg:FuzzBatch:150000 \
	./zmsg:FuzzText:150000 ./internal/settings:FuzzLoad:120000 ./internal/mongowire:FuzzRead:250000 ./zactor:FuzzReadRecord:120000 ./zrouter:FuzzState:60000 \
	./zrouter:FuzzBoundOf:15000 ./zgate:FuzzPushOrder:60000 ./zgate:FuzzProxyHeader:150000 ./zgate/jwtauth:FuzzToken:150000 ./zmsg:FuzzBinding:60000

fuzz: ## every fuzz target, what a client may send to a gate the longest
	@for f in $(FUZZ); do IFS=: read -r package target times <<< "$$f"; echo "== fuzz $$package $$target"; \
		go test -run '^$$' -fuzz "^$$target$$" -fuzztime "$${times}x" "$$package"; done

bench: ## benchmarks, next to their baselines (BENCHTIME=1s COUNT=1)
	go test -run '^$$' -bench . -benchtime $(BENCHTIME) -count $(COUNT) ./...

bench-peers: ## actors next to a raw mailbox, a channel and protoactor-go: one table of ratios (PEERS='-rounds 5 -only tell')
	cd bench && go run ./cmd/peers $(PEERS)

bench-bus: ## two nodes over NATS in three processes next to the bare client: one table of ratios (BUS='-rounds 3 -only one-way')
	cd bench && go run ./cmd/bus $(BUS)

bench-transfer: ## requests while objects move, while a node drains and after one is killed: one table (TRANSFER='-only storm -moves 1000')
	cd bench && go run ./cmd/transfer $(TRANSFER)

bench-gate: ## a gate next to a bare TCP echo, each on one core, clients on another: one table of ratios (GATE='-rounds 3 -only echo')
	cd bench && go run ./cmd/gate $(GATE)

bench-smoke: ## every benchmark once
	go test -run '^$$' -bench . -benchtime 1x ./...
	$(MAKE) bench-bus BUS='-rounds 1 -time 20ms'
	$(MAKE) bench-gate GATE='-rounds 1 -time 20ms -scale 50 -idle 200ms -stream 10'

ten-minutes: ## what a newcomer does in the first ten minutes, in a fresh directory, each step timed
	cd test && go test -count=1 -v -run TestTenMinutes ./scaffold

docs: ## links between the documents lead somewhere
	go test ./internal/doctest

vuln: ## known vulnerabilities of dependencies; needs the open network, so it is no part of ci
	go run golang.org/x/vuln/cmd/govulncheck@latest ./...

clean: ## remove what was built
	rm -rf $(BIN) .zgame

ci: ## everything CI runs; what needs the browser or Node is installed by .ci/run
	$(MAKE) build
	$(MAKE) test
	$(MAKE) race
	$(MAKE) lint
	$(MAKE) cross
	$(MAKE) web-check
	$(MAKE) browser-test
	$(MAKE) fuzz
	$(MAKE) bench-smoke

.PHONY: help build cross test race chaos lint proto proto-check web web-check ts-install browser-test fuzz bench bench-peers bench-bus bench-transfer bench-gate bench-smoke ten-minutes docs vuln clean ci
