#!/bin/sh
# Check commits. The message has a subject such as "periodic: store late ticks at once" with at most 72 characters, an
# empty line, and a body. No file has more than 256,000 bytes, as a compiled program has.
#
# usage: check-commits.sh [REVISIONS]   as git log takes them; by default at most 20 commits, since the last tag or since this script exists
set -eu
cd "$(dirname "$0")/.."
git rev-parse --git-dir >/dev/null 2>&1 || { echo "not a git repository: no commits to check"; exit 0; }
if [ $# = 0 ]; then
	start=$(git describe --tags --abbrev=0 2>/dev/null || git log -1 --diff-filter=A --format=%H -- scripts/check-commits.sh)
	set -- -20 "$start..HEAD"
fi

commits=$(git log --no-merges --format=%h "$@")
failed=0
for commit in $commits; do
	subject=$(git log -1 --format=%s "$commit")
	problem=
	echo "$subject" | grep -Eq '^[a-z][a-z0-9_./, -]*: [^A-Z ]' || problem="the subject is not of the form \"package: imperative subject\""
	[ "${#subject}" -le 72 ] || problem="the subject has more than 72 characters"
	[ -n "$(git log -1 --format=%b "$commit")" ] || problem="there is no body that says why"
	large=$(git diff-tree --root --no-commit-id -r --diff-filter=AM "$commit" | cut -d ' ' -f 4 |
		git cat-file --batch-check='%(objectsize)' | awk '$1 > 256000')
	[ -z "$large" ] || problem="a file has $large bytes"
	[ -z "$problem" ] || { echo "$commit $subject: $problem" >&2; failed=1; }
done
exit $failed
