#!/usr/bin/env bash
# Runs tests with a fifth of the processors, beside four busy loops with another fifth: a test may be slow there, never red.
# Usage: scripts/slow-test.sh [go test arguments]; without any, all that make test runs. Needs root, for control groups.
set -euo pipefail
cd "$(dirname "$0")/.."

quota=$(($(nproc) * 20000)) # µs of each 100,000
# fifth creates a control group that gets a fifth of the processors, and prints its folder.
fifth() {
  local folder=/sys/fs/cgroup/$1
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    grep -qw cpu /sys/fs/cgroup/cgroup.subtree_control || echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
    mkdir "$folder"
    echo "$quota 100000" >"$folder/cpu.max"
  else
    folder=/sys/fs/cgroup/cpu/$1
    mkdir "$folder"
    echo 100000 >"$folder/cpu.cfs_period_us"
    echo "$quota" >"$folder/cpu.cfs_quota_us"
  fi
  echo "$folder"
}
tests=$(fifth "slow-test-$$")
busy=$(fifth "slow-test-$$-busy")
loops=()
end() {
  for pid in "${loops[@]}"; do kill "$pid" 2>/dev/null || true; done
  echo $$ >"$(dirname "$tests")/cgroup.procs"
  for folder in "$tests" "$busy"; do
    for _ in $(seq 50); do rmdir "$folder" 2>/dev/null && break || sleep 0.1; done
  done
}
trap end EXIT
for _ in 1 2 3 4; do
  (while :; do :; done) &
  loops+=($!)
  echo $! >"$busy/cgroup.procs"
done
echo $$ >"$tests/cgroup.procs"

if [ $# -gt 0 ]; then
  go test -vet=off -p 1 -shuffle=on -timeout 120m "$@"
else
  make test TIMEOUT=240m
fi
