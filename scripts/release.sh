#!/bin/sh
# Prepare a release in this clone and print what to push. It pushes nothing.
#
# usage: release.sh VERSION   for example v0.1.0
#
# It dates the entry "Unreleased" of CHANGELOG.md, makes all modules require this version of the others, commits, and tags the root and the
# published modules. All tags are at one commit, because the root's files do not include those of the other modules.
set -eu
cd "$(dirname "$0")/.."
version=${1:-}
root=github.com/redisdelay/watermill-redisdelay
modules="cmd/redisdelay redisdelayotel redisdelayprom"
tags=$version
for module in $modules; do tags="$tags $module/$version"; done

fail() { echo "release.sh: $*" >&2; exit 1; }

echo "$version" | grep -Eqx 'v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?' || fail "want a version such as v0.1.0"
[ -z "$(git status --porcelain)" ] || fail "the working tree has changes"
# shellcheck disable=SC2086 # a list
[ -z "$(git tag --list $tags)" ] || fail "$version is already tagged"
grep -qFx '## [Unreleased]' CHANGELOG.md || fail "CHANGELOG.md has no entry Unreleased"
commit=$(git rev-parse HEAD)
green=$(gh run list --workflow ci.yml --commit "$commit" --status success --json databaseId --jq length) || fail "gh cannot list the runs of CI"
[ "$green" -gt 0 ] || fail "CI has not passed for commit $commit"

work=$(mktemp -d)
finish() {
	[ $? = 0 ] || git reset -q --hard "$commit" # nothing is tagged yet
	rm -rf "$work"
}
trap finish EXIT

# write FILE replaces the content of a file with the standard input, which may be made from it.
write() { cat >"$work/new" && cat "$work/new" >"$1"; }

awk -v entry="## [$version] - $(date -u +%F)" '{ print } $0 == "## [Unreleased]" { print "\n" entry }' CHANGELOG.md | write CHANGELOG.md
for file in $(git ls-files '*go.mod'); do
	sed "s|^\([[:space:]]$root[a-z/]*\) v.*|\1 $version|" "$file" | write "$file"
done
git commit -qam "release: $version" -m "All modules require this version of the others."

# The command has no replace directive, because "go install" refuses one. So its go.sum needs the checksum of the root. The go command
# computes it from a clone with the tag, and without the module cache of this machine, which would keep that version.
git clone -q . "$work/clone"
git -C "$work/clone" tag "$version"
sums=cmd/redisdelay/go.sum
grep -v "^$root v" $sums | write $sums
(
	cd cmd/redisdelay
	export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$work/clone.insteadOf" GIT_CONFIG_VALUE_0="https://$root"
	GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
	export GOPROXY GOPRIVATE=$root GOMODCACHE="$work/modules" GOFLAGS=-modcacherw GOWORK=off
	go mod download $root
)
git commit -qa --amend --no-edit

for tag in $tags; do git tag -a "$tag" -m "$tag"; done
cat <<END
$version is ready. To publish it, push the root first, then the modules that require it:
  git push origin HEAD $version
  git push origin${tags#"$version"}
To undo it:
  git tag -d $tags && git reset --hard $commit
END
