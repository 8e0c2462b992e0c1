#!/bin/sh
# Install what the examples in other languages need, as far as it is missing: Debian's packages for Python and PHP, and npm's for
# Node. Without it, internal/verify/languages skips these languages.
set -eu
cd "$(dirname "$0")/.."

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

missing=""
/usr/bin/python3 -c 'import redis' 2>/dev/null || missing="$missing python3 python3-redis"
php -r 'exit(class_exists("Redis") ? 0 : 1);' 2>/dev/null || missing="$missing php-cli php-redis"
command -v npm >/dev/null || missing="$missing nodejs npm"
if [ -n "$missing" ]; then
	if ! command -v apt-get >/dev/null; then
		echo "Please install, for the examples in other languages:$missing" >&2
		exit 1
	fi
	echo "installing$missing" >&2
	as_root apt-get update -qq
	# shellcheck disable=SC2086 # a list
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
fi
[ -d examples/node/node_modules/redis ] || (cd examples/node && npm ci --no-audit --no-fund)
