GO ?= go
GOLANGCI_LINT_VERSION = v2.15.0
LINT = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

.PHONY: test lint stress fuzz examples redis-server

## test: install redis-server if it is missing, then run all tests
test: redis-server
	$(GO) test -race -shuffle=on -timeout 20m ./...

## stress: Watermill's stress test, ten suites at once
stress: redis-server
	$(GO) test -race -tags=stress -timeout 30m -run 'Stress' .

## lint: vet and golangci-lint
lint:
	$(GO) vet ./...
	$(LINT) run ./...

## examples: run each example to its end, on an embedded Redis
examples:
	./scripts/run-examples.sh

redis-server:
	@./scripts/install-redis.sh
