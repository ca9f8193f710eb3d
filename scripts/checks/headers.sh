#!/usr/bin/env bash
# scripts/checks/headers.sh [BUILD]: may users include what is installed?
#
# Preprocesses <troupe/troupe.hpp> and every other public header: none may show CAF, oneDNN, Eigen,
# ZeroMQ, msgpack or CUDA, and each must compile on its own.
set -euo pipefail
build=$(realpath "${1:-$(dirname "$0")/../../build/release}")
[ -e "$build/include/troupe/functions.hpp" ] || { echo "$build: not configured; run scripts/build" && exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The installation decides which headers are public.
cmake -DTROUPE_HEADERS_FROM="$build/include" -DCMAKE_INSTALL_PREFIX="$work/installed" \
  -P "$(dirname "$0")/../cmake/InstallHeaders.cmake" >/dev/null
cd "$work/installed/include"

private='/(caf|Eigen|eigen3|oneapi|zmq|msgpack)/|/(dnnl|zmq|msgpack|cuda|cublas|cudnn)[a-z_]*\.h(pp)?$'

check_one() { # header: prints what is wrong with it
  local out
  # -H prints the tree of includes; the last troupe/ header above a private one is to blame.
  if ! out=$(echo "#include <$1>" | g++ -std=c++20 -fsyntax-only -Wall -Wextra -Werror -H -I . -x c++ - 2>&1); then
    grep -E '(error|fatal)' <<<"$out" | head -5 | sed "s|^|$1: does not compile alone: |"
    return 1
  fi
  awk -v private="$private" -v header="$1" '
    /^\.+ / {
      depth = length($1); file = $2
      if (file ~ /\/troupe\//) { at = depth; name = file }
      else if (file ~ private && name != "") { sub(/^\.\//, "", name); print header ": " name " shows " file; exit 1 }
    }' <<<"$out"
}
export -f check_one
export private

find troupe -name '*.hpp' -printf '%P\n' | sort | sed 's|^|troupe/|' |
  xargs -P "$(nproc)" -I{} bash -c 'check_one "$1"' _ {} || exit 1
