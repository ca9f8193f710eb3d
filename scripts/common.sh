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

# bench_table: the JSON lines of benchmarks, as a table; other lines as they are.
bench_table() {
  awk '
    function field(key,   rest, at) {
      at = index($0, "\"" key "\": ")
      if (!at) return ""
      rest = substr($0, at + length(key) + 4)
      if (rest ~ /^"/) { match(rest, /^"([^"\\]|\\.)*"/); return substr(rest, 2, RLENGTH - 2) }
      match(rest, /^[^,}]*/)
      rest = substr(rest, 1, RLENGTH)
      return rest == "null" ? "" : rest
    }
    # Lists keys of numbers that the benchmark adds to the usual ones.
    function added(   rest, pair, at, all) {
      rest = $0
      while (match(rest, /"[a-z_0-9]+": -?[0-9][^,}]*/)) {
        pair = substr(rest, RSTART + 1, RLENGTH - 1)
        rest = substr(rest, RSTART + RLENGTH)
        at = index(pair, "\": ")
        if (substr(pair, 1, at - 1) !~ \
            /^(value|peer_value|ratio|budget|budget_value|threads|min|max|crowding)$/)
          all = all (all == "" ? "" : ", ") substr(pair, 1, at - 1) " " short(substr(pair, at + 3))
      }
      return all == "" ? "" : "  [" all "]"
    }
    function short(number) { return number == "" ? "-" : sprintf("%.4g", number) }
    BEGIN {
      form = "%-34s %10s %-8s %10s  %-34s %7s %8s  %s\n"
      printf form, "name", "value", "unit", "peer", "which", "ratio", "budget", "verdict"
    }
    /^\{/ {
      up = field("speed_up") == "true"
      ratio = field("ratio"); budget = field("budget"); limit = field("budget_value")
      verdict = ""; shown = "-"
      if (budget != "") {
        shown = (up ? ">= " : "<= ") short(budget)
        if (ratio == "") verdict = field("value") == "" ? "not measured" : "no peer"
        else
          verdict = (up ? ratio + 0 >= budget + 0 : ratio + 0 <= budget + 0) ? "within" : "MISSED"
      }
      if (limit != "") {
        shown = (shown == "-" ? "" : shown ", ") "<= " short(limit) " " field("unit")
        verdict = (verdict == "" ? "" : verdict ", ") \
          (field("value") + 0 <= limit + 0 ? "within" : "MISSED")
      }
      note = field("note")
      printf form, field("name"), short(field("value")), field("unit"), short(field("peer_value")),
        substr(field("peer") (field("peer_version") == "" ? "" : " " field("peer_version")), 1, 34),
        short(ratio), shown, verdict added() (note == "" ? "" : "  (" note ")")
      next
    }
    { print }'
}
