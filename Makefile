GO ?= go
GOLANGCI_LINT_VERSION = v2.15.0
LINT = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

.PHONY: test lint stress chaos failover soak sim explore fuzz examples watch bench matrix redis-server prometheus

# Modules beside the library's own, with tests. Each has dependencies that the library has not.
MODULES = metrics/prometheus otel examples/watch

## test: install redis-server and prometheus if they are missing, then run all tests
test: redis-server prometheus
	$(GO) test -race -shuffle=on -timeout 20m ./...
	$(GO) test -run 'TestPubSubDelayed/TestReconnect|TestNothingIsReadFromReplicas' ./internal/acceptance # races outside this library
	$(GO) test -run 'Allocates' . # the race detector allocates, too
	for module in $(MODULES); do (cd $$module && $(GO) test -race -shuffle=on -timeout 10m ./...) || exit 1; done

## stress: Watermill's stress test, ten suites at once
stress: redis-server
	$(GO) test -race -tags=stress -timeout 30m -run 'Stress' ./internal/acceptance

## chaos: the full fault suite, about half an hour; subscribers that come and go take eleven minutes of it
chaos: redis-server prometheus
	$(GO) test -timeout 60m -v ./internal/chaos -full -skip 'Cluster|Sentinel|Replicas'
	$(GO) test -timeout 5m ./internal/queue -run TestModel -model.steps 100000
	cd metrics/prometheus && $(GO) test -timeout 5m -v . -run 'Checker|Thousand' -load 1m -bound

## failover: Redis Cluster and Sentinel failing over, in full, 15 minutes at most
failover: redis-server
	$(GO) test -timeout 15m -v ./internal/chaos -full -run 'Cluster|Sentinel|Replicas'

## soak: mixed faults for SOAK (30m by default), and a thousand virtual months, about a minute
SOAK ?= 30m
soak: redis-server
	$(GO) test -timeout 0 -v ./internal/chaos -run TestSoak -soak $(SOAK)
	$(GO) test -timeout 30m ./redisdelaytest -run ThirtyDays -runs 1000

## sim: delivery and publish, then the whole library, in virtual time against random faults, each for
## SIM (10m by default); then mistakes that are put back on purpose
SIM ?= 10m
sim:
	$(GO) test -timeout 0 -v ./internal/sim -run TestSimulation -sim.time $(SIM)
	$(GO) test -timeout 0 -v ./internal/whole -run TestWhole -whole.time $(SIM)
	$(GO) test -timeout 30m -v ./internal/whole -run TestMistakesAreFound -whole.putback

## explore: all states of small universes, and torn files, on the real scripts; some minutes
explore: redis-server
	$(GO) test -timeout 30m -v ./internal/queue -run Explore -explore

## fuzz: each fuzz target for FUZZTIME (30s by default)
FUZZTIME ?= 30s
fuzz:
	$(GO) test -run '^$$' -fuzz FuzzDefaultMarshaler -fuzztime $(FUZZTIME) .
	$(GO) test -run '^$$' -fuzz FuzzDelayHeaders -fuzztime $(FUZZTIME) .
	$(GO) test -run '^$$' -fuzz FuzzNames -fuzztime $(FUZZTIME) ./internal/queue

## lint: vet and golangci-lint
lint:
	$(GO) vet ./...
	$(LINT) run ./...
	for module in bench $(MODULES); do (cd $$module && $(GO) vet ./... && $(LINT) run ./...) || exit 1; done

## examples: run each example to its end, on an embedded Redis or a cluster of its own
examples:
	./scripts/run-examples.sh

## watch: run the example watch with a real Prometheus for 20 seconds, and print what the queries of the
## dashboard answer
watch: redis-server prometheus
	cd examples/watch && $(GO) run ./show

## bench: measure beside peers and floors, about 20 minutes; writes docs/benchmarks
bench: redis-server
	cd bench && $(GO) run .

## matrix: all tests on Redis 7.0 and 8.0, Redict (which is Redis 7.2) and Valkey 8 and 9, from where
## apt has them; about 5 minutes each. SERVERS='redis-7.0 valkey-9' chooses
matrix:
	./scripts/matrix.sh

redis-server:
	@./scripts/install-redis.sh

prometheus:
	@./scripts/install-prometheus.sh
