#!/bin/sh
# Do objects compiled for one x86-64 level define symbols that another object could be linked to?
#
#   scripts/cmake/check_levels.sh build/release
#
# A template instantiated in two levels is one weak symbol; the linker keeps either copy, perhaps
# the AVX-512 one, for all. Every weak definition must therefore name its level (Eigen_v4::…);
# strong ones would clash by themselves.
set -eu
build=${1:?usage: check_levels.sh BUILD_DIRECTORY}
objects=0
bad=0
for level in v2 v3 v4 portable; do
  for object in $(find "$build" -path "*_$level.dir*" -name '*.o'); do
    objects=$((objects + 1))
    shared=$(nm -C --defined-only "$object" | grep -E ' [WVu] ' |
      grep -v -e "Eigen_$level" -e 'DW\.ref\.' || true)
    if [ -n "$shared" ]; then
      echo "$object defines symbols that levels would share:"
      echo "$shared"
      bad=1
    fi
  done
done
[ "$objects" -gt 0 ] || { echo "no level objects under $build"; exit 1; }
[ "$bad" -eq 0 ] && echo "$objects level objects share no symbol"
exit "$bad"
