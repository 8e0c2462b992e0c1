#!/bin/sh
# Run all tests on every server that this machine has, or can get from Debian, and say which it
# could not get. The output of each run is in .cache/matrix.
#
# usage: matrix.sh [ARGUMENT OF go test]...   by default all tests
#   SERVERS  only these, by name: SERVERS='redis-7.0 valkey-9'
#   MORE     more of them, as REDIS_SERVER takes them: MORE='/opt/valkey/bin /opt/redict/bin'
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- ./...
logs=$PWD/.cache/matrix
mkdir -p "$logs"
: >"$logs/summary"
failed=0

wanted() { case " ${SERVERS:-$1} " in *" $1 "*) ;; *) return 1 ;; esac; }
tell() { printf '%-12s %-16s %s\n' "$1" "$2" "$3" | tee -a "$logs/summary"; }

# test_on NAME SERVER ARGUMENT...
test_on() {
	name=$1 server=$2
	shift 2
	program=$server
	if [ -d "$server" ]; then
		program=$(find "$server/" -name '*-server' | head -n 1)
	fi
	version=$("$program" --version 2>/dev/null | sed 's/\([A-Za-z]*\).* v=\([^ ]*\).*/\1 \2/') || version=
	if [ -n "$version" ] && grep -q " $version  *passed\| $version  *FAILED" "$logs/summary"; then
		tell "$name" "$version" "as above"
		return
	fi
	if REDIS_SERVER=$server ${GO:-go} test -count=1 -timeout 30m "$@" >"$logs/$name.log" 2>&1; then
		tell "$name" "$version" passed
	else
		failed=1
		tell "$name" "$version" "FAILED, see .cache/matrix/$name.log:"
		grep -E '^ *--- FAIL|^FAIL|^panic|no server|REDIS_SERVER' "$logs/$name.log" | head -n 20
	fi
}

if wanted local; then
	if program=$(command -v redis-server); then
		test_on local "$program" "$@"
	else
		tell local - "not there: no redis-server on the PATH"
	fi
fi
while read -r name package releases; do
	wanted "$name" || continue
	# shellcheck disable=SC2086 # several releases
	if server=$(./scripts/fetch-server.sh "$name" "$package" $releases 2>"$logs/$name.log" </dev/null); then
		test_on "$name" "$server" "$@" </dev/null
	else
		tell "$name" - "could not be had: $(cat "$logs/$name.log")"
	fi
done <<END
redis-7.0 redis-tools bookworm
redict-7.3 redict-tools bookworm-backports bookworm
redis-8.0 redis-tools trixie
valkey-8.0 valkey-tools bookworm-backports bookworm
valkey-9 valkey-tools sid
END
for server in ${MORE:-}; do
	test_on "$(echo "${server#/}" | tr / -)" "$server" "$@"
done

printf '\nSummary:\n'
cat "$logs/summary"
grep -q ' passed$' "$logs/summary" || failed=1 # nothing passed: there was no server
exit $failed
