#!/usr/bin/env bash
# scripts/checks/hygiene.sh [--update] [TREE]: is the text clean?
#
# There are no tabs, trailing blanks, carriage returns or missing last newlines. No suppression
# hides CAF or Troupe from a sanitizer. No pipe of a script ends in a reader that stops early. No
# two types have one name, which the linker takes for one. Lines over 100 characters and violations
# of prose rules, in comments, pages, texts of the product and names of tests, are counted: prose.py
# has the rules, prose.counts the numbers, which --update lowers. Each violation is named by file
# and line.
set -euo pipefail
checks=$(cd "$(dirname "$0")" && pwd)
update=()
[ "${1:-}" != --update ] || { update=(--update) && shift; }
cd "${1:-$checks/../..}"

pruned=(-path ./build -o -path ./.git -o -path ./.peers -o -path ./.cache -o -name __pycache__)
files() {
  find . \( "${pruned[@]}" \) -prune -o -type f "$@" -print |
    sed 's|^\./||' | sort
}

status=0
complain() { # pattern, sentence; files on stdin
  local found
  found=$(xargs -d '\n' grep -nIE "$1" /dev/null | cut -c1-160 || true)
  [ -z "$found" ] && return
  status=1
  while IFS= read -r line; do echo "$(cut -d: -f1-2 <<<"$line"): $2"; done <<<"$found"
}

texts=$(files ! -name LICENSE ! -name '*.golden' ! -name '*.csv' ! -empty)
complain $'\t' "a tab" <<<"$texts"
complain '[[:blank:]]$' "a trailing blank" <<<"$texts"
complain $'\r' "a carriage return" <<<"$texts"
while IFS= read -r file; do
  [ -z "$file" ] || { echo "$file:$(($(wc -l <"$file") + 1)): no newline at the end" && status=1; }
done < <(xargs -d '\n' grep -LIPz '\n\z' <<<"$texts" | xargs -r -d '\n' grep -lI . || true)

code=$(files ! -name hygiene.sh \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cmake' \
  -o -name CMakeLists.txt -o -name '*.json' -o -name '*supp*' \
  -o -path './scripts/*' -o -path './.ci/*' \))
look_away='no_sanitize|[TA]SAN_OPTIONS.*suppressions|__tsan_ignore|__[tal]san_default_suppressions'
complain "$look_away" "a sanitizer is told to look away" <<<"$code"
complain '^[a-z_-]*:[^ ]*(caf|troupe)' "a suppression of CAF or Troupe" <<<"$code"

# With pipefail a writer that the early end of its reader kills fails the script, now and then.
scripts=$(files ! -name hygiene.sh \( -name '*.sh' -o -path './.ci/*' -o -path './scripts/*' \) |
  xargs -r -d '\n' grep -lIE '^#!.*(bash|/sh)' || true)
complain '[|] *(head|grep +-[a-zA-Z]*q)\b' "the end of a pipe stops reading early" <<<"$scripts"

# Types that are defined twice at the outermost level of a named namespace of the library.
library=(devices ops controlflow autodiff actors cluster)
mapfile -t sources < <(find "${library[@]}" \( -name '*.hpp' -o -name '*.cpp' \) | sort)
twice=$(awk '
  FNR == 1 { depth = 0 }
  /^(inline )?namespace( [A-Za-z0-9_:]+)? *[{]/ {
    name = $0
    sub(/^(inline )?namespace */, "", name)
    sub(/ *[{].*/, "", name)
    space[++depth] = name
    next
  }
  /^[}] *\/\/ namespace/ { depth--; next }
  /^(template *<.*> *)?(struct|class|union|enum class|enum) [A-Za-z0-9_]+/ {
    if ($0 ~ /;[^{]*$/ && $0 !~ /[{]/) next
    type = $0
    sub(/^(template *<.*> *)?(struct|class|union|enum class|enum) /, "", type)
    sub(/^alignas[(].*[)] /, "", type)
    rest = type; sub(/^[A-Za-z0-9_]+/, "", rest); sub(/[^A-Za-z0-9_].*/, "", type)
    if (rest ~ /^(::|<)/) next
    full = ""
    for (i = 1; i <= depth; ++i) { if (space[i] == "") next; full = full space[i] "::" }
    full = full type
    if (full in where && where[full] != FILENAME)
      print FILENAME ":" FNR ": " full " is another type in " where[full]
    where[full] = FILENAME
  }' "${sources[@]}")
[ -z "$twice" ] || { echo "$twice"; status=1; }
python3 "$checks/prose.py" "${update[@]}" . || status=1
exit $status
