#!/bin/sh
# scripts/cmake/ccache.sh CCACHE COMPILER ARGUMENT...: starts the compiler for CMake.
#
# The compiler would read an existing precompiled header instead of its source headers, and ccache
# would return objects made from others. So the old one is removed first. The two sloppiness options
# are required to cache precompiled headers at all.
#
# A precompiled header made of the same text with other comments is no substitute: `#pragma once`
# identifies headers by their bytes, and would read them twice. So the headers' own bytes decide,
# not the output of the preprocessor.
#
# Clones of this tree share compiled objects: paths below it count as relative. Lines that debug
# information names may then be another clone's.
before='' is_header=''
for argument; do
  case $before$argument in -o*.gch) rm -f "$argument"; is_header=1 ;; esac
  before=
  [ "$argument" = -o ] && before=-o
done
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "$is_header" ] || export CCACHE_DEPEND=1
CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 exec "$@"
