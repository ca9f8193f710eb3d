#!/usr/bin/env bash
# scripts/checks/format.sh [TREE]: are the C++ files as clang-format 14 leaves them?
#
# Each difference is named by file and line; `clang-format-14 -i FILE...` repairs a file. Other
# versions of clang-format differ, so Debian 12's is the measure. Exit status 77 if it is not
# installed.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

command -v clang-format-14 >/dev/null ||
  { echo "clang-format-14 is not installed; scripts/setup installs it" && exit 77; }

# differences FILE...: in one write, since several run at once.
differences() {
  local out
  out=$(clang-format-14 --style=file --dry-run -Werror "$@" 2>&1) || printf '%s\n' "$out"
}
export -f differences

pruned=(-path ./build -o -path ./.git -o -path ./.peers -o -path ./.cache)
code=(-name '*.[ch]pp' -o -name '*.cu')
found=$(find . \( "${pruned[@]}" \) -prune -o \( "${code[@]}" \) -printf '%P\n' | sort |
  xargs -P "$(nproc)" -n 20 bash -c 'differences "$@"' _)
[ -n "$found" ] || exit 0
differs='clang-format 14 writes this differently'
lines=$(sed -nE "s/^([^ ].*:[0-9]+):[0-9]+: error: .*/\1: $differs/p" <<<"$found" |
  sort -u -t: -k1,1 -k2,2n)
echo "${lines:-$found}"
exit 1
