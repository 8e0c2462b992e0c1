#!/bin/sh
# Run each example to its end; any that fails ends this.
set -eu
cd "$(dirname "$0")/.."

go run ./examples/quickstart
go run ./examples/router
go run ./examples/cqrs
go run ./examples/periodic
go run ./examples/requeue
for broker in gochannel redisstream; do
	go run ./examples/relay -broker "$broker"
done
go run ./examples/migrate
