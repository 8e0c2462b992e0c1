#!/bin/sh
# Run the long forms of the tests one after another and print a table of their results. docs/inside/tests.md explains them.
#
# usage: full.sh [FORM]...   by default all forms; "explore" stands for all whose names begin with "explore-"
#
# A form is a target of the Makefile. Its output and the table are in .cache/full.
set -eu
cd "$(dirname "$0")/.."
logs=.cache/full
forms="chaos-faults chaos-periodic chaos-inbox chaos-metrics failover model
explore-sound explore-damage explore-torn sim-delivery sim-whole sim-mistakes year months cron
stress dashboard matrix bench million10"
SIM=${SIM:-5m} ROUNDS=${ROUNDS:-3}
export SIM ROUNDS

# named NAME prints the forms that a name stands for.
named() {
	for form in $forms; do
		case $form in "$1" | "$1"-*) echo "$form" ;; esac
	done
}

# row FORM RESULT TIME adds a row to the table.
row() { printf '| %-15s | %-6s | %8s |\n' "$@" >>"$logs/summary.md"; }

chosen=""
for name in "$@"; do
	matches=$(named "$name")
	[ -n "$matches" ] || { echo "no form is named $name; want some of:" $forms >&2 && exit 2; }
	chosen="$chosen $matches"
done

mkdir -p "$logs"
: >"$logs/summary.md"
row form result time
row --------------- ------ -------:
failed=0
for form in ${chosen:-$forms}; do
	echo "$(date +%T) $form"
	start=$(date +%s)
	result=passed
	make "$form" >"$logs/$form.log" 2>&1 || { result=FAILED; failed=1; }
	took=$(($(date +%s) - start))
	row "$form" "$result" "$((took / 60))m$((took % 60))s"
	[ "$result" = passed ] || echo "  it has failed; its output is in $logs/$form.log"
done
cat "$logs/summary.md"
exit $failed
