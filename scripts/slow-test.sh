#!/usr/bin/env bash
# Runs tests with a fifth of the processors, which four busy loops want as well: a test may be slow there, never red.
# Usage: scripts/slow-test.sh [go test arguments]; without any, all that make test runs. Needs root, for a control group.
set -euo pipefail
cd "$(dirname "$0")/.."

quota=$(($(nproc) * 20000)) # µs of each 100,000
group=slow-test-$$
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  folder=/sys/fs/cgroup/$group
  grep -qw cpu /sys/fs/cgroup/cgroup.subtree_control || echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
  mkdir "$folder"
  echo "$quota 100000" >"$folder/cpu.max"
else
  folder=/sys/fs/cgroup/cpu/$group
  mkdir "$folder"
  echo 100000 >"$folder/cpu.cfs_period_us"
  echo "$quota" >"$folder/cpu.cfs_quota_us"
fi
loops=()
end() {
  for pid in "${loops[@]}"; do kill "$pid" 2>/dev/null || true; done
  echo $$ >"$(dirname "$folder")/cgroup.procs"
  for _ in $(seq 50); do rmdir "$folder" 2>/dev/null && return || sleep 0.1; done
}
trap end EXIT
echo $$ >"$folder/cgroup.procs"
for _ in 1 2 3 4; do
  (while :; do :; done) &
  loops+=($!)
done

if [ $# -gt 0 ]; then
  go test -vet=off -p 1 -shuffle=on -timeout 120m "$@"
else
  make test TIMEOUT=240m
fi
