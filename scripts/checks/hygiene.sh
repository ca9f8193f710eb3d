#!/usr/bin/env bash
# scripts/checks/hygiene.sh [TREE]: no tabs, trailing blanks, carriage returns or missing last newline;
# no sanitizer told to look away from CAF or Troupe; no two types of one name (which the linker would take for one). Every violation is named by file and line.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

files() {
  find . \( -path ./build -o -path ./.git -o -path ./.peers -o -path ./.cache -o -name __pycache__ \) -prune -o -type f "$@" -print | sed 's|^\./||' | sort
}

status=0
complain() { # pattern, sentence; files on stdin
  local found
  found=$(xargs -d '\n' grep -nIE "$1" /dev/null | cut -c1-160 || true)
  [ -z "$found" ] && return
  status=1
  while IFS= read -r line; do echo "$(cut -d: -f1-2 <<<"$line"): $2"; done <<<"$found"
}

texts=$(files ! -name LICENSE ! -name '*.golden' ! -name '*.csv')
complain $'\t' "a tab" <<<"$texts"
complain '[[:blank:]]$' "a trailing blank" <<<"$texts"
complain $'\r' "a carriage return" <<<"$texts"
while IFS= read -r file; do
  [ -s "$file" ] && grep -qI . "$file" && [ -n "$(tail -c 1 "$file")" ] && { echo "$file:$(($(wc -l <"$file") + 1)): no newline at the end"; status=1; }
done <<<"$texts"

code=$(files ! -name hygiene.sh \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cmake' -o -name CMakeLists.txt -o -name '*.json' -o -path './scripts/*' -o -path './.ci/*' -o -name '*supp*' \))
complain 'no_sanitize|TSAN_OPTIONS.*suppressions|ASAN_OPTIONS.*suppressions|__tsan_ignore|__[tal]san_default_suppressions' "a sanitizer is told to look away" <<<"$code"
complain '^(race|race_top|leak|deadlock|mutex|signal|thread|called_from_lib|interceptor_[a-z_]*|vptr|alignment|signed-integer-overflow|[a-z-]*):[^ ]*(caf|troupe)' \
  "a suppression of CAF or Troupe" <<<"$code"

# Types that are defined at the outermost level of a namespace, which has a name, twice in what is linked together.
mapfile -t sources < <(files \( -path './devices/*' -o -path './ops/*' -o -path './controlflow/*' -o -path './autodiff/*' -o -path './actors/*' -o -path './cluster/*' \) \
  \( -name '*.hpp' -o -name '*.cpp' \))
twice=$(awk '
  FNR == 1 { depth = 0 }
  /^(inline )?namespace( [A-Za-z0-9_:]+)? *[{]/ { name = $0; sub(/^(inline )?namespace */, "", name); sub(/ *[{].*/, "", name); space[++depth] = name; next }
  /^[}] *\/\/ namespace/ { depth--; next }
  /^(template *<.*> *)?(struct|class|union|enum class|enum) [A-Za-z0-9_]+/ {
    if ($0 ~ /;[^{]*$/ && $0 !~ /[{]/) next
    type = $0; sub(/^(template *<.*> *)?(struct|class|union|enum class|enum) /, "", type)
    rest = type; sub(/^[A-Za-z0-9_]+/, "", rest); sub(/[^A-Za-z0-9_].*/, "", type)
    if (rest ~ /^(::|<)/) next
    full = ""
    for (i = 1; i <= depth; ++i) { if (space[i] == "") next; full = full space[i] "::" }
    full = full type
    if (full in where && where[full] != FILENAME) print FILENAME ":" FNR ": " full " is another type in " where[full]
    where[full] = FILENAME
  }' "${sources[@]}")
[ -z "$twice" ] || { echo "$twice"; status=1; }
exit $status
