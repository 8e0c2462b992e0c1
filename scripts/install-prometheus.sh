#!/bin/sh
# Install prometheus, which brings promtool, for the tests, unless they are there.
set -eu

if command -v prometheus >/dev/null && command -v promtool >/dev/null; then exit 0; fi
echo "prometheus is missing; installing it" >&2

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

if command -v apt-get >/dev/null; then
	as_root apt-get update -qq
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus
elif command -v brew >/dev/null; then
	brew install prometheus
else
	echo "Please install prometheus and promtool, and put them on the PATH." >&2
	exit 1
fi
command -v promtool >/dev/null || { echo "promtool is still missing" >&2; exit 1; }
