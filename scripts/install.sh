#!/bin/sh
# Install what tests need, unless it is there: install.sh redis (or REDIS_SERVER names a server), prometheus (which brings
# promtool), chromium (or CHROMIUM names a browser), or axe (axe-core below .cache, for the test of accessibility; needs npm).
set -eu
cd "$(dirname "$0")/.."

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# has NAME... succeeds if one of these programs is there.
has() {
	for name in "$@"; do
		if command -v "$name" >/dev/null; then return; fi
	done
	return 1
}

# package PROGRAMS PACKAGES installs packages that have one of the programs.
package() {
	! has $1 || return 0
	echo "$1 is missing; installing it" >&2
	if has apt-get; then
		as_root apt-get update -qq
		as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $2
	elif has brew; then
		brew install ${2%-server}
	fi
	has $1 || { echo "Please install $1, and put it on the PATH." >&2; exit 1; }
}

case ${1:-} in
redis) [ -n "${REDIS_SERVER:-}" ] || package redis-server redis-server ;;
prometheus) package promtool prometheus ;;
chromium) [ -n "${CHROMIUM:-}" ] || package "chromium chromium-browser google-chrome" "chromium fonts-dejavu" ;;
axe)
	version=4.14.1
	[ -f .cache/axe/package/axe.min.js ] || (
		mkdir -p .cache/axe && cd .cache/axe
		npm pack --silent "axe-core@$version" >&2
		tar -xzf "axe-core-$version.tgz" package/axe.min.js
	)
	;;
*) echo "usage: $0 redis|prometheus|chromium|axe" >&2 && exit 2 ;;
esac
