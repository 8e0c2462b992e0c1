#!/bin/sh
# Install chromium for the tests of the dashboard in a browser, unless it is there or CHROMIUM names another.
set -eu

[ -z "${CHROMIUM:-}" ] || exit 0
for name in chromium chromium-browser google-chrome; do
	! command -v "$name" >/dev/null || exit 0
done
echo "chromium is missing; installing it" >&2

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

if command -v apt-get >/dev/null; then
	as_root apt-get update -qq
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu
else
	echo "Please install chromium and put it on the PATH, or name a browser in CHROMIUM." >&2
	exit 1
fi
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { echo "chromium is still missing" >&2; exit 1; }
