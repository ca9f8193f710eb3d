# shellcheck shell=bash
# Shared functions of the scripts; sourced, never run.
#
#   . "$(dirname "$0")/common.sh"
#
# It leaves the caller in the source tree's root, with `set -euo pipefail`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Checked nodes write their flight files there. test/CMakeLists.txt sets the folder for tests.
export STATE_DIRECTORY=$PWD/build/state

say() { printf '%s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 2
}

# The comment at the head of a script is its help.
help_if_asked() {
  case "${1:-}" in
    -h | --help)
      sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
  esac
}

preset_or_die() {
  case "$1" in
    release | debug | asan | tsan) ;;
    *) die "there is no preset '$1'; they are release, debug, asan and tsan" ;;
  esac
}

# todays_third NAME...: prints the names whose index in the list is today's, one in three, so that
# CI tries all of them in three days. TROUPE_ROTATION=N takes another day's.
todays_third() {
  local turn=${TROUPE_ROTATION:-$(($(date +%s) / 86400))} place=0 name
  for name in "$@"; do
    [ $((place++ % 3)) -ne $((turn % 3)) ] || printf '%s\n' "$name"
  done
}
