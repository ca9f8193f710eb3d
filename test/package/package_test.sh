#!/usr/bin/env bash
# test/package/package_test.sh SOURCE BUILD: is the .deb all that a user needs?
#
# Packs it, unpacks it into an empty folder, builds a program against it, with CMake and with
# pkg-config, runs it and compares the ops it lists with those in the source. Prints how long a file of
# sixty lines takes to compile (a budget of 3 s, never asserted: a timed test would be flaky).
set -euo pipefail
source=$1 build=$2
command -v dpkg-deb >/dev/null || { echo "there is no dpkg-deb here" && exit 77; }
for program in dpkg-shlibdeps file; do
  command -v $program >/dev/null ||
    { echo "there is no $program here; scripts/setup installs it" && exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cpack --config "$build/CPackConfig.cmake" -B "$work/pack" >"$work/cpack.log" 2>&1 || { cat "$work/cpack.log" && exit 1; }
deb=$(echo "$work"/pack/*.deb)
dpkg-deb --info "$deb" | grep -E '^ (Package|Version|Depends):'
dpkg -x "$deb" "$work/root"
prefix=$work/root/usr

# The headers know nothing of the source tree or its build.
if grep -rlF -e "$source" -e "$build" "$prefix/include" "$prefix/lib/cmake" "$prefix/lib/pkgconfig"; then
  echo "these files name the tree they were built in"
  exit 1
fi
for header in troupe cluster op; do
  [ -f "$prefix/include/troupe/$header.hpp" ] || { echo "$header.hpp was not installed" && exit 1; }
  [ ! -L "$prefix/include/troupe/$header.hpp" ] || { echo "$header.hpp was installed as a link" && exit 1; }
done

# What shells look for under these names, as the installed binary says it.
for shell_file in bash:bash-completion/completions/troupe zsh:zsh/vendor-completions/_troupe fish:fish/vendor_completions.d/troupe.fish; do
  "$prefix/bin/troupe" completions "${shell_file%%:*}" | cmp - "$prefix/share/${shell_file#*:}" || { echo "the completions of ${shell_file%%:*} are not installed" && exit 1; }
done

# What it prints as JSON, and why it says that a run hangs.
for document in cluster/inspect/INSPECTION.md:INSPECTION.md actors/observe/INSPECTION.md:HANGS.md; do
  cmp "$source/${document%%:*}" "$prefix/share/doc/troupe/${document#*:}" || { echo "${document%%:*} is not installed" && exit 1; }
done

cmake -S "$source/test/package" -B "$work/by_cmake" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log" 2>&1 || { cat "$work/cmake.log" && exit 1; }
CCACHE_DISABLE=1 cmake --build "$work/by_cmake" >"$work/build.log" 2>&1 || { cat "$work/build.log" && exit 1; }
"$work/by_cmake/list_ops" >"$work/by_cmake.txt"

export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
read -ra flags < <(pkg-config --cflags troupe)
read -ra libraries < <(pkg-config --libs troupe)
export CCACHE_DISABLE=1
start=$(date +%s%N)
c++ -O2 -c "$source/test/package/main.cpp" -o "$work/main.o" "${flags[@]}"
echo "a program of $(wc -l <"$source/test/package/main.cpp") lines compiled in $((($(date +%s%N) - start) / 1000000)) ms"
c++ -O2 "$work/main.o" "$source/test/package/node.cpp" "$source/test/package/own_op.cpp" -o "$work/by_pkg_config" "${flags[@]}" "${libraries[@]}"
LD_LIBRARY_PATH=$prefix/lib "$work/by_pkg_config" >"$work/by_pkg_config.txt"
cmp "$work/by_cmake.txt" "$work/by_pkg_config.txt"

# Every op of the source is listed, and by the installed binary too.
find "$source"/*/library -name '*.cpp' -print0 | xargs -0 sed -nE 's/^TROUPE_OP\(([A-Za-z0-9_]+)\).*/\1/p' |
  sort >"$work/declared.txt"
[ "$(wc -l <"$work/declared.txt")" -gt 100 ] || { echo "the source declares hardly any op" && exit 1; }
sed -n 's/^\([A-Za-z0-9_]*\): .*/\1/p' "$work/by_cmake.txt" | sort >"$work/all.txt"
grep -qx UsersTwice "$work/all.txt" || { echo "the user's own op is not listed" && exit 1; }
grep -vx UsersTwice "$work/all.txt" >"$work/listed.txt"
missing=$(comm -23 "$work/declared.txt" "$work/listed.txt")
[ -z "$missing" ] || { echo "declared but not listed:" $missing && exit 1; }
"$prefix/bin/troupe" ops >"$work/troupe_ops.txt"
while IFS= read -r op; do
  grep -q "^$op " "$work/troupe_ops.txt" || { echo "troupe ops does not list $op" && exit 1; }
done <"$work/listed.txt"
"$prefix/bin/troupe" doctor | tail -1
echo "$(wc -l <"$work/listed.txt") ops, $(wc -l <"$work/declared.txt") of them named in the source"
