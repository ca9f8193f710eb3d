#!/usr/bin/env bash
# scripts/checks/sanitized_programs.sh PRESET: random programs, in one process and over nodes, under
# a sanitizer (asan or tsan), ten times as many as .ci/run tries.
set -euo pipefail
cd "$(dirname "$0")/../.."

preset=$1
scripts/build "$preset" test_controlflow test_cluster >/dev/null
launcher=()
if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then launcher=(setarch -R); fi
for suite in controlflow:random_programs_test cluster:random_cluster_test; do
  TROUPE_PROGRAMS=300 "${launcher[@]}" "build/$preset/test/test_${suite%%:*}" \
    --run_test="${suite##*:}" '--run_test=!@one_thread' --color_output=no
done
