#!/usr/bin/env bash
# scripts/checks/tidy.sh FOLDER...: does clang-tidy find bugs in these top-level folders?
#
# The checks are those of .clang-tidy. Configures the debug preset, whose commands compile each file
# on its own. Installs clang-tidy-16 if it is missing, and can be: exit status 77 if not.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || { echo "name folders" && exit 2; }
scripts/checks/install.sh clang-tidy-16
cmake --preset debug >/dev/null
# tidy FILE: in one write, since several run at once. g++ reports warnings.
tidy() {
  local out status=0
  out=$(clang-tidy-16 -p build/debug --quiet --extra-arg=-w --extra-arg=-Qunused-arguments "$1" \
    2>/dev/null) || status=$?
  [ -z "$out" ] || printf '%s\n' "$out" | sed "s|^$PWD/||"
  return "$status"
}
export -f tidy
find "$@" -name '*.cpp' -print0 | sort -z | xargs -0 -P "$(nproc)" -I{} bash -c 'tidy "$1"' _ {}
