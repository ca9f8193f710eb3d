#!/usr/bin/env bash
# scripts/checks/busy.sh FOLDER: the release suites of test/FOLDER beside 16 busy processes, as on a
# machine that is eight times oversubscribed.
set -euo pipefail
cd "$(dirname "$0")/../.."

pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true' EXIT
for _ in {1..16}; do
  (while :; do :; done) &
  pids+=($!)
done
TROUPE_NO_SETUP=1 ctest --test-dir build/release --output-on-failure --no-tests=error \
  --parallel 2 -R "^$1/"
