#!/bin/sh
# Print how the API has changed since the last version that is tagged. From v1.0.0 on, an incompatible change fails.
set -eu
cd "$(dirname "$0")/.."
version=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null) || { echo "no version is tagged yet"; exit; }
old=$(mktemp -d)
trap 'git worktree remove --force "$old"' EXIT
git worktree add -q --detach "$old" "$version"
apidiff="${GO:-go} run golang.org/x/exp/cmd/apidiff@v0.0.0-20261113113407-e3970619a1a4"
(cd "$old" && $apidiff -m -w "$old/.api" github.com/redisdelay/watermill-redisdelay)
changes=$($apidiff -m "$old/.api" github.com/redisdelay/watermill-redisdelay)
echo "Since $version:"
echo "$changes"
case $version in
v0.*) ;;
*) ! echo "$changes" | grep -q '^Incompatible changes' ;;
esac
