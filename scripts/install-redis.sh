#!/bin/sh
# Install redis-server for the tests, unless it is there or REDIS_SERVER names another.
set -eu

[ -z "${REDIS_SERVER:-}" ] || exit 0
command -v redis-server >/dev/null && exit 0
echo "redis-server is missing; installing it" >&2

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

if command -v apt-get >/dev/null; then
	as_root apt-get update -qq
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server
elif command -v brew >/dev/null; then
	brew install redis
else
	echo "Please install redis-server 7.0 or newer and put it on the PATH." >&2
	exit 1
fi
command -v redis-server >/dev/null || { echo "redis-server is still missing" >&2; exit 1; }
