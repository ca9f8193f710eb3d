#!/usr/bin/env bash
# scripts/checks/whole_suites.sh PRESET: the suites of which .ci/run tries a share under a sanitizer
# (asan or tsan), whole, but for random programs (sanitized_programs.sh).
set -euo pipefail
cd "$(dirname "$0")/../.."

preset=$1 build=build/$1
suites=(ops:op_table_test "cluster:diagnose_test,unfilled_test"
  "controlflow:several_devices,list_test")
scripts/build "$preset" test_ops test_cluster test_controlflow >/dev/null
launcher=() filter=()
if [ "$preset" = tsan ]; then
  filter=('--run_test=!@one_thread')
  if setarch -R true 2>/dev/null; then launcher=(setarch -R); fi
fi
for suite in "${suites[@]}"; do
  TROUPE_WHOLE=1 "${launcher[@]}" "$build/test/test_${suite%%:*}" --run_test="${suite##*:}" \
    "${filter[@]}" --color_output=no
done
if [ "$preset" = asan ]; then # over processes, whose ZeroMQ TSan does not see into
  scripts/build "$preset" troupe_binary >/dev/null
  over=$(grep -lE '(all|cluster)_settings\(|all_places\(|everywhere\(' test/controlflow/*_test.cpp |
    xargs sed -n 's/^BOOST_[A-Z_]*TEST_SUITE(\([a-z0-9_]*\).*/\1/p' | sort -u | paste -sd,)
  TROUPE_OVER_PROCESSES=1 "$build/test/test_controlflow" --run_test="$over" --color_output=no
fi
