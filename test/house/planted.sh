#!/usr/bin/env bash
# test/house/planted.sh: sourced by the tests of the checks, with the arguments SOURCE BUILD. Makes
# a copy of the tree, in which violations are planted.
set -euo pipefail
source=$1 checks=$1/scripts/checks
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() { # sentence [file]
  echo "$1" && failures=$((failures + 1))
  [ -z "${2:-}" ] || cat "$2"
}

# The tracked files, or all that is not built if the source is no repository.
files_of_source() {
  if [ -e .git ]; then
    git ls-files -z | while IFS= read -r -d '' f; do [ ! -e "$f" ] || printf '%s\0' "$f"; done
  else
    local pruned=(-path ./build -o -path ./.peers -o -path ./.cache -o -name __pycache__)
    find . \( "${pruned[@]}" \) -prune -o -type f -print0
  fi
}
tree=$work/tree
mkdir "$tree"
(cd "$source" && files_of_source | tar -cf - --null -T -) | tar -xf - -C "$tree"
# A repository, by which hygiene tells new lines from old ones.
repository() { git -C "$tree" -c user.name=test -c user.email=test@localhost "$@"; }
restore() { repository reset -q --hard && repository clean -qfdx; }
repository init -q 2>/dev/null
repository add -A -f
repository commit -q -m "the tree as it is"

check() { "$checks/$1.sh" "${@:2}" "$tree" >"$work/out" 2>&1; }
passes() { check "$1" || fail "$1 fails on $2:" "$work/out"; }

# plant FILE TEXT PATTERN: appends the text to the file, whose last line is to be reported so.
planted=()
plant() {
  local file=$tree/$1
  [ -e "$file" ] || { mkdir -p "$(dirname "$file")" && printf '// new\n' >"$file"; }
  printf '%s\n' "$2" >>"$file"
  planted+=("$1:$(wc -l <"$file"): .*$3")
}

# finds CHECK: it fails, and reports all that was planted, which is then removed.
finds() {
  local pattern missed=''
  ! check "$1" || missed="a failure"
  for pattern in "${planted[@]}"; do
    grep -qE "^$pattern" "$work/out" || missed+="${missed:+, }'$pattern'"
  done
  [ -z "$missed" ] || fail "$1 did not report $missed, but:" "$work/out"
  planted=()
  restore
}
