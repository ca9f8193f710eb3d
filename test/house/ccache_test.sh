#!/usr/bin/env bash
# test/house/ccache_test.sh SOURCE BUILD: a precompiled header is compiled again if one of its
# headers has changed, if only in a comment, or is back as it was. Otherwise a unit that includes
# that header again has all of it twice.
set -euo pipefail
ccache=$(command -v ccache) || { echo "there is no ccache" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export CCACHE_DIR=$work/cache
printf '#include "part.hpp"\n' >all.hpp
compile() { "$1/scripts/cmake/ccache.sh" "$ccache" c++ -fpch-preprocess -Winvalid-pch "${@:2}"; }
number=0
for comment in 'as it was' 'changed' 'as it was'; do
  printf '#pragma once\nstruct Part { int x = 0; };  // %s\n' "$comment" >part.hpp
  # A unit that was not compiled before.
  printf '#include "part.hpp"\nint main() { return Part{}.x + %s; }\n' $((number += 1)) >use.cpp
  compile "$1" -MD -MF all.d -x c++-header -o all.hpp.gch -c all.hpp
  compile "$1" -include all.hpp -MD -MF use.d -o use.o -c use.cpp ||
    { echo "with the comment '$comment' it does not compile" && exit 1; }
done
