#!/bin/sh
# scripts/cmake/ccache.sh CCACHE COMPILER ARGUMENT...: what CMake starts the compiler by.
#
# A precompiled header that is there already would be looked at instead of the headers that it was made of, and ccache would give
# out one that was made of others. So the old one goes first. Only with the two relaxations are they cacheable at all.
#
# Nor may it be one that was made of the same text with other comments: `#pragma once` knows headers by their bytes, and would read them twice. So the
# headers' own bytes decide, not what comes out of the preprocessor.
#
# Clones of this tree share what they have compiled: paths below it count as relative. Lines that debug information names may then be another clone's.
before='' is_header=''
for argument; do
  case $before$argument in -o*.gch) rm -f "$argument"; is_header=1 ;; esac
  before=
  [ "$argument" = -o ] && before=-o
done
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "$is_header" ] || export CCACHE_DEPEND=1
CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 exec "$@"
