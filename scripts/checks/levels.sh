#!/usr/bin/env bash
# scripts/checks/levels.sh [BUILD] [--emulated]: the table of operations, and products by tiles, at
# each level of x86-64.
#
# Runs natively with TROUPE_CPU_LEVEL forced to each level this processor has. With --emulated it
# also runs under qemu-x86_64 (qemu-user, which it installs if it may) with a processor that has no
# more than the level. So an instruction that leaked into shared code is found. qemu emulates no
# AVX-512: v4 runs natively alone. Exit status 77 if there is nothing to run.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-build/release}
suites=(--run_test='op_table_test/values_*,known_values,non_finite_values_*' --color_output=no)
for binary in test_ops test_devices; do
  [ -x "$build/test/$binary" ] ||
    { echo "there is no $build/test/$binary; scripts/build makes it" && exit 77; }
done
[ "$(uname -m)" = x86_64 ] || { echo "this is no x86-64" && exit 77; }

status=0
table() { # its name, command...
  local what=$1 out
  shift
  if out=$("$@" "$build/test/test_ops" "${suites[@]}" 2>&1 &&
    "$@" "$build/test/test_devices" --run_test=tile_product_test --color_output=no 2>&1); then
    echo "$what: $(grep -o '[0-9]* runs on' <<<"$out" | cut -d' ' -f1) runs"
  else
    status=1
    echo "$what FAILED" && tail -15 <<<"$out"
  fi
}

for level in v2 v3 v4; do
  # ends with 1 if the level is not the processor's
  said=$(TROUPE_CPU_LEVEL=$level "$build/troupe" doctor 2>&1) || true
  if grep -q "this processor runs" <<<"$said"; then
    echo "level $level: not this processor's"
  else
    table "level $level" env TROUPE_CPU_LEVEL=$level
  fi
done

if [ "${2:-}" = --emulated ]; then
  command -v qemu-x86_64 >/dev/null ||
    { [ "$(id -u)" -eq 0 ] &&
      apt-get install -y -qq --no-install-recommends qemu-user >/dev/null 2>&1; } ||
    { echo "qemu-user is not installed" && exit $((status == 0 ? 77 : 1)); }
  table "v2 on an emulated Nehalem" env -u TROUPE_CPU_LEVEL qemu-x86_64 -cpu Nehalem
  table "v3 on an emulated Haswell" env -u TROUPE_CPU_LEVEL qemu-x86_64 -cpu Haswell
fi
exit $status
