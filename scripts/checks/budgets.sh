#!/usr/bin/env bash
# scripts/checks/budgets.sh [TREE]: checks that test/budgets.txt has a row for each folder of suites
# in each preset that runs them, and no other.
# scripts/checks/budgets.sh --times PRESET RESULTS [TREE]: prints the seconds that ctest reports for
# each folder (RESULTS, its JUnit file) beside the budget, and fails if a folder has no budget or
# takes more than ten times as long: on a machine that is busy eight times over it passes. With
# TROUPE_BUDGETS=1 a folder may take no longer than its budget.
set -euo pipefail
preset='' results=''
if [ "${1:-}" = --times ]; then
  preset=$2 results=$(realpath "$3")
  shift 3
fi
cd "${1:-$(dirname "$0")/../..}"
budgets=test/budgets.txt

if [ -n "$preset" ]; then
  sed -n 's/.*<testcase name="\([^"]*\)".* time="\([0-9.]*\)".*/\2 \1/p' "$results" |
    awk -v preset="$preset" -v most="${TROUPE_BUDGETS:+1}" '
      BEGIN { if (!most) most = 10 }
      FNR == NR { if ($1 == preset) { budget[$2] = $3; has_row[$2] }; next }
      { split($2, part, "/"); sum[part[1]] += $1 }
      END {
        for (folder in sum) {
          printf "  %7.1f  %s (%s)%s\n", sum[folder], folder,
            (folder in has_row) ? budget[folder] : "none",
            (sum[folder] > budget[folder] ? " OVER" : "") | "sort -rn"
        }
        close("sort -rn")
        for (folder in sum) {
          if (sum[folder] <= most * budget[folder]) continue
          status = 1
          if (folder in has_row)
            printf "%s %s took %.0f s, more than %sits budget of %s s; make suites faster, or " \
              "raise the row in test/budgets.txt and say why\n", preset, folder, sum[folder],
              most == 1 ? "" : most " times ", budget[folder]
          else printf "%s %s has no budget; add its row to test/budgets.txt\n", preset, folder
        }
        exit status
      }' "$budgets" -
  exit
fi

# Prints the folders whose suites the preset compiles and runs (test/CMakeLists.txt).
folders_of() { # preset
  local suite
  find test -mindepth 2 -name '*_test.cpp' | sort | while IFS= read -r suite; do
    ! grep -qE "^// Not under ($1|asan and tsan): " "$suite" || continue
    [ "$1" != tsan ] ||
      grep -E '^BOOST_(AUTO|FIXTURE)_TEST_SUITE\(' "$suite" | grep -qv TROUPE_ONE_THREAD || continue
    echo "$suite"
  done | cut -d/ -f2
  [ "$1" != release ] || find test -mindepth 2 -name '*_test.sh' | cut -d/ -f2
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for preset in release asan tsan; do
  folders_of "$preset" | sort -u | sed "s/^/$preset /"
done >"$work/runs"
# Programs that are tests by themselves: tools/, faults/, examples/.
find apps test -name CMakeLists.txt -exec grep -ohE 'add_test\(NAME [a-z]+/' {} + |
  sed 's/.* //; s|/$||' | sort -u >"$work/programs"
awk -v budgets="$budgets" -v programs="$work/programs" '
  BEGIN { while ((getline folder <programs) > 0) is_program[folder] }
  FNR == NR { runs[$1 " " $2]; next }
  {
    known[$1 " " $2]
    if (!(($1 " " $2) in runs) && !($2 in is_program)) {
      print budgets ":" FNR ": " $1 " runs no suites of test/" $2 "/; remove the row"; status = 1
    }
    if ($3 + 0 <= 0) { print budgets ":" FNR ": the budget is no number of seconds"; status = 1 }
  }
  END {
    for (row in runs) {
      if (row in known) continue
      print budgets ":1: there is no row " row "; add its seconds"; status = 1
    }
    exit status
  }' "$work/runs" "$budgets"
