#!/bin/sh
# Install axe-core below .cache, for the test of accessibility in a browser. It needs npm.
set -eu
cd "$(dirname "$0")/.."
version=4.14.1
[ -f .cache/axe/package/axe.min.js ] || (
	mkdir -p .cache/axe && cd .cache/axe
	npm pack --silent "axe-core@$version" >&2
	tar -xzf "axe-core-$version.tgz" package/axe.min.js
)
