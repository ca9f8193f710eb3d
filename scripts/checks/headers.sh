#!/usr/bin/env bash
# scripts/checks/headers.sh [BUILD [COMPILER]]: checks that users can include the installed headers.
# E10
#
# Preprocesses <troupe/troupe.hpp> and every other public header: none may show CAF, oneDNN, Eigen,
# ZeroMQ, msgpack or CUDA, and each must compile on its own, with g++ or COMPILER. clang++-16 is
# installed if it is missing, and can be: exit status 77 if not.
set -euo pipefail
checks=$(cd "$(dirname "$0")" && pwd)
export compiler=${2:-g++}
[ "$compiler" != clang++-16 ] || "$checks/install.sh" clang-16
build=$(realpath "${1:-$(dirname "$0")/../../build/release}")
[ -e "$build/include/troupe/functions.hpp" ] ||
  { echo "$build: not configured; run scripts/build" && exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The installation decides which headers are public.
cmake -DTROUPE_HEADERS_FROM="$build/include" -DCMAKE_INSTALL_PREFIX="$work/installed" \
  -P "$checks/../cmake/InstallHeaders.cmake" >/dev/null
cd "$work/installed/include"

private='/(caf|Eigen|eigen3|oneapi|zmq|msgpack)/|/(dnnl|zmq|msgpack|cuda|cublas|cudnn)'
private+='[a-z_]*\.h(pp)?$'

check_one() { # header: prints what is wrong with it
  local out flags=(-fsyntax-only -Wall -Wextra -Werror -H -I . -x c++)
  # -H prints the tree of includes; the last troupe/ header above a private one is to blame.
  if ! out=$(echo "#include <$1>" | "$compiler" -std=c++20 "${flags[@]}" - 2>&1); then
    grep -E '(error|fatal)' <<<"$out" | sed -n "1,5s|^|$1: does not compile alone: |"
    return 1
  fi
  awk -v private="$private" -v header="$1" '
    /^\.+ / {
      depth = length($1); file = $2
      if (file ~ /\/troupe\//) { at = depth; name = file }
      else if (file ~ private && name != "") {
        sub(/^\.\//, "", name)
        print header ": " name " shows " file
        exit 1
      }
    }' <<<"$out"
}
export -f check_one
export private

find troupe -name '*.hpp' -printf '%P\n' | sort | sed 's|^|troupe/|' |
  xargs -P "$(nproc)" -I{} bash -c 'check_one "$1"' _ {} || exit 1
