#!/usr/bin/env bash
# scripts/checks/hygiene.sh [TREE]: no tabs, trailing blanks, carriage returns or missing last newline;
# no sanitizer told to look away from CAF or Troupe. Every violation is named by file and line.
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
exit $status
