GO ?= go
GOLANGCI_LINT_VERSION = v2.15.0
LINT = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

.PHONY: test test-slow pages languages lint vulnerabilities full stress chaos chaos-faults chaos-periodic chaos-inbox chaos-metrics model failover soak months year cron sim sim-delivery sim-whole sim-mistakes explore \
	explore-sound explore-damage explore-torn fuzz \
	examples dashboard bench matrix redis-server prometheus chromium axe

# Modules beside the library's own, with tests. Each has dependencies that the library has not.
MODULES = cmd/redisdelay redisdelayprom redisdelayotel examples/watch

## test: install redis-server and prometheus if they are missing, then run all tests, in about five minutes;
## RACE=-race looks for data races, too, and takes twice as long
RACE ?=
TIMEOUT ?= 20m
LONG = ./periodic $(addprefix ./internal/verify/,acceptance chaos whole explore) # those that take longest begin first
ALL = $(MODULES:%=./%/...) $(LONG) ./...
# What is tested without the detector: packages whose tests compute for minutes in one goroutine at a time, or run other programs.
PLAIN = $(addprefix ./internal/verify/,whole explore release pages)
WATCHED = $(filter-out $(PLAIN),$(MODULES:%=./%/...) $(LONG)) $(shell $(GO) list ./... | grep -v -e verify/whole -e verify/explore -e verify/release -e verify/pages)
test: redis-server prometheus
	$(GO) test $(RACE) -vet=off -p $(if $(RACE),3,4) -shuffle=on -timeout $(TIMEOUT) \
		$(if $(RACE),$(WATCHED),$(ALL)) # most tests wait for a server; make lint vets
ifneq ($(RACE),) # what needs no detector, and what it cannot watch: races outside this library, and allocations
	$(GO) test -vet=off -shuffle=on -timeout $(TIMEOUT) $(PLAIN)
	$(GO) test -run 'TestPubSubDelayed/TestReconnect|TestNothingIsReadFromReplicas' ./internal/verify/acceptance
	$(GO) test -run 'Allocates' .
endif

## test-slow: all tests with a fifth of the processors, beside four busy loops; hours. PACKAGES='./inbox' chooses
PACKAGES ?=
test-slow: redis-server prometheus
	./scripts/slow-test.sh $(PACKAGES)

## pages: what a change of pages alone can break: their links, code and tables
pages: redis-server
	$(GO) test ./internal/verify/pages ./internal/verify/upstream
	$(GO) test -run 'README|Docs|Page|Documented|Described' . ./inbox ./redisdelaytest ./redisdelayprom ./cmd/redisdelay/...

## languages: install what the examples in Python, Node and PHP need, and test them; without these, make test skips them
languages: redis-server
	./scripts/install-languages.sh
	CI=true $(GO) test -timeout 10m -v ./internal/verify/languages

## stress: Watermill's stress test, ten suites at once, and its suite in full in all forms
stress: redis-server
	$(GO) test -race -tags=stress -count=1 -timeout 30m -v -run '^TestPubSub' ./internal/verify/acceptance

## full: run all long forms one after another and print a table of the results; about three hours. FORMS='explore sim'
## runs only these
FORMS ?=
full:
	./scripts/full.sh $(FORMS)

## chaos: the full fault suite, about half an hour
chaos: chaos-faults chaos-periodic chaos-inbox chaos-metrics model

CLUSTERS = Cluster|Sentinel

## chaos-faults: all faults but failovers, about 15 minutes
chaos-faults: redis-server
	$(GO) test -timeout 40m -v ./internal/verify/chaos -full -skip '$(CLUSTERS)|EachSecond|EachEntry'

## chaos-periodic: schedules for every second, while all that runs them dies, thirteen minutes
chaos-periodic: redis-server
	$(GO) test -timeout 40m -v ./internal/verify/chaos -full -parallel 1 -run EachSecond

## chaos-inbox: entries of the inbox, while all that stores them dies
chaos-inbox: redis-server
	$(GO) test -timeout 40m -v ./internal/verify/chaos -full -run EachEntry

## chaos-metrics: what Prometheus shows agrees with the messages
chaos-metrics: redis-server prometheus
	cd redisdelayprom && $(GO) test -timeout 10m -v . -run 'Checker|Thousand' -load 1m -bound

## model: random operations on the scripts, compared with what they mean
model: redis-server
	$(GO) test -timeout 5m -v ./internal/queue -run TestModel -model.steps 100000

## failover: Redis Cluster and Sentinel failing over, in full, 15 minutes at most
failover: redis-server
	$(GO) test -timeout 40m -v ./internal/verify/chaos -full -run '$(CLUSTERS)' -skip EachSecond

## soak: mixed faults for SOAK (30m by default) of real time, a virtual year, and months
SOAK ?= 30m
soak: redis-server
	$(GO) test -timeout 0 -v ./internal/verify/chaos -run TestSoak -soak $(SOAK)
	$(MAKE) year months

## year: a service of 50 processes and 200 topics in use for YEAR virtual days (365 by default, some ten minutes), with
## deployments, outages and operators: nothing stays that nobody owns
YEAR ?= 365
year:
	$(GO) test -timeout 90m -v ./internal/verify/whole -run '^TestYear$$' -year.days $(YEAR)

## months: a thousand virtual months, about a minute
months:
	$(GO) test -timeout 30m -v ./redisdelaytest -run ThirtyDays -runs 1000

## cron: the times of cron expressions in all time zones, compared with a walk through time; two minutes
cron:
	$(GO) test -timeout 15m -v ./internal/cron -run Walk -full

## sim: the library in virtual time against random faults
sim: sim-delivery sim-whole sim-mistakes

## sim-delivery: delivery and publish on a topic in memory, for SIM (10m by default)
SIM ?= 10m
sim-delivery:
	$(GO) test -timeout 0 -v ./internal/verify/sim -run TestSimulation -sim.time $(SIM)

## sim-whole: the whole library on a Redis in memory, for SIM
sim-whole:
	$(GO) test -timeout 0 -v ./internal/verify/whole -run TestWhole -whole.time $(SIM)

## sim-mistakes: whether the simulation of the whole library, and the year, find mistakes that are put back on purpose
sim-mistakes:
	$(GO) test -timeout 30m -v ./internal/verify/whole -run 'TestMistakesAreFound|TestLeaksAreFound' -whole.putback

## explore: all states of small universes, also with lost records and torn files, on the real scripts; about half an hour
explore: explore-sound explore-damage explore-torn

EXPLORE = $(GO) test -timeout 40m -v ./internal/verify/explore -explore

## explore-sound: universes in which nothing is lost, and whether the explorer finds faults
explore-sound: redis-server
	$(EXPLORE) -skip '^TestExplore$$/^(damage|torn)'

## explore-damage: universes in which records are lost
explore-damage: redis-server
	$(EXPLORE) -run '^TestExplore$$/^damage'

## explore-torn: universes in which the last write of Redis is lost in part
explore-torn: redis-server
	$(EXPLORE) -run '^TestExplore$$/^torn'

## fuzz: each fuzz target for FUZZTIME (30s by default)
FUZZTIME ?= 30s
fuzz:
	$(GO) test -run '^$$' -fuzz FuzzDefaultMarshaler -fuzztime $(FUZZTIME) .
	$(GO) test -run '^$$' -fuzz FuzzJSONMarshaler -fuzztime $(FUZZTIME) .
	$(GO) test -run '^$$' -fuzz FuzzMetadata -fuzztime $(FUZZTIME) ./internal/delays
	$(GO) test -run '^$$' -fuzz FuzzParse -fuzztime $(FUZZTIME) ./internal/cron
	$(GO) test -run '^$$' -fuzz FuzzNames -fuzztime $(FUZZTIME) ./internal/script
	$(GO) test -run '^$$' -fuzz FuzzNotifications -fuzztime $(FUZZTIME) ./internal/queue
	$(GO) test -run '^$$' -fuzz FuzzExportedLinesAreImported -fuzztime $(FUZZTIME) ./admin
	$(GO) test -run '^$$' -fuzz FuzzPayload -fuzztime $(FUZZTIME) ./internal/humanize

## lint: golangci-lint, which vets as well
lint:
	$(LINT) run ./...
	for module in $(MODULES) bench; do (cd $$module && $(LINT) run ./...) || exit 1; done

## vulnerabilities: known ones that the code of the library and the command reaches
vulnerabilities:
	for module in . cmd/redisdelay redisdelayprom redisdelayotel; do (cd $$module && $(GO) run golang.org/x/vuln/cmd/govulncheck@latest ./...) || exit 1; done

## examples: run each example to its end, on an embedded Redis
examples:
	./scripts/run-examples.sh

## dashboard: the tests of the dashboard in a real browser, some two minutes, which make test leaves out; PICTURES=DIR draws its
## pages, too
PICTURES ?=
dashboard: redis-server chromium axe
	cd dashboard/browser && AXE=$(CURDIR)/.cache/axe/package/axe.min.js $(GO) test -count=1 -timeout 10m -v . -required $(if $(PICTURES),-pictures $(abspath $(PICTURES)))

## bench: measure beside peers and floors, about half an hour, or less with ROUNDS=3 for 5; writes docs/benchmarks
bench: redis-server
	cd bench && $(GO) run . $(if $(ROUNDS),-rounds $(ROUNDS))

## matrix: all tests on Redis 7.0 and 8.0, Redict (which is Redis 7.2) and Valkey 8 and 9, from where
## apt has them; about 5 minutes each. SERVERS='redis-7.0 valkey-9' chooses
matrix:
	./scripts/matrix.sh

redis-server:
	@./scripts/install.sh redis

prometheus:
	@./scripts/install.sh prometheus

chromium:
	@./scripts/install.sh chromium

axe:
	@./scripts/install.sh axe
