#!/usr/bin/env bash
# test/package/package_test.sh SOURCE BUILD: are the Debian packages all that a user needs?
#
# Packs them, unpacks them into an empty folder, builds a program against it, with CMake and with
# pkg-config, runs it and compares the ops it lists with those in the source. Prints how long a file
# of sixty lines takes to compile (a budget of 3 s, never asserted: a timed test would be flaky).
# scripts/checks/packages.sh installs them in a fresh Debian.
set -euo pipefail
source=$1 build=$2
command -v dpkg-deb >/dev/null || { echo "there is no dpkg-deb here" && exit 77; }
for program in dpkg-shlibdeps file; do
  command -v $program >/dev/null ||
    { echo "there is no $program here; scripts/setup installs it" && exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { # sentence, file...
  echo "$1"
  shift
  for file in "$@"; do cat "$file"; done
  exit 1
}

cpack --config "$build/CPackConfig.cmake" -B "$work/pack" >"$work/cpack.log" 2>&1 ||
  fail "cpack fails:" "$work/cpack.log"
version=$(sed -n '1s/^troupe (\(.*\)) .*/\1/p' "$source/scripts/debian/changelog")
maintainer=$(sed -n '/^ -- /{s/^ -- \(.*>\)  .*/\1/p;q}' "$source/scripts/debian/changelog")
architecture=$(dpkg --print-architecture)
multiarch=$(gcc -print-multiarch)
packages=(troupe libtroupe0.1 libtroupe-dev)
# A build with nvcc also has the plug-in.
if [ -e "$build/libtroupe_cuda.so" ]; then packages+=(troupe-cuda); fi
field() { dpkg-deb --field "$work/pack/$1_${version}_$architecture.deb" "$2"; }
expect() { # package, field, what it must contain
  [[ ", $(field "$1" "$2")" = *"$3"* ]] || fail "$1 has $2 '$(field "$1" "$2")', without '$3'"
}
for package in "${packages[@]}"; do
  deb=$work/pack/${package}_${version}_$architecture.deb
  [ -e "$deb" ] || fail "there is no $(basename "$deb"):" <(ls "$work/pack")
  [ "$(field "$package" Maintainer)" = "$maintainer" ] || fail "$package has another maintainer"
  mkdir "$work/$package" && dpkg-deb -x "$deb" "$work/$package" && dpkg-deb -x "$deb" "$work/root"
  documents=$work/$package/usr/share/doc/$package
  cmp "$source/scripts/debian/copyright" "$documents/copyright"
  zcat "$documents/changelog.Debian.gz" | cmp - "$source/scripts/debian/changelog"
  strange=$(find "$work/$package" -perm /022 ! -type l)
  [ -z "$strange" ] || fail "others may write: $strange"
done
[ "$(find "$work/pack" -maxdepth 1 -name '*.deb' | wc -l)" -eq ${#packages[@]} ] ||
  fail "these are not ${#packages[@]} packages:" <(ls "$work/pack")
expect troupe Depends ", libtroupe0.1 (= $version)"
expect troupe Depends ", libc6 (>= "
expect libtroupe-dev Depends ", libtroupe0.1 (= $version)"
expect libtroupe0.1 Depends ", libzmq5 (>= "
for package in libtroupe0.1 libtroupe-dev; do expect $package Multi-Arch ', same'; done
if [ ${#packages[@]} -eq 4 ]; then
  expect troupe-cuda Depends ", libtroupe0.1 (= $version)"
  for package in "${packages[@]}"; do # CUDA's libraries are opened, not linked
    ! field "$package" Depends | grep -qiE 'cuda|cudnn|cublas|nvrtc|nvidia' ||
      fail "$package depends on CUDA: $(field "$package" Depends)"
  done
  [ -e "$work/troupe-cuda/usr/lib/$multiarch/troupe/libtroupe_cuda.so" ] ||
    fail "troupe-cuda has no plug-in:" <(find "$work/troupe-cuda")
  for package in troupe libtroupe0.1 libtroupe-dev; do
    strange=$(find "$work/$package" -name '*cuda*')
    [ -z "$strange" ] || fail "$package has parts of the plug-in: $strange"
  done
fi
dpkg-deb --ctrl-tarfile "$work/pack/troupe_${version}_$architecture.deb" | tar -xOf - ./conffiles \
  >"$work/conffiles"
grep -qx /etc/default/troupe-node "$work/conffiles" || fail "the service's flags are no conffile"

# The place of each file.
libraries=usr/lib/$multiarch
for file in "libtroupe0.1 $libraries/libtroupe.so.0.1" "libtroupe-dev $libraries/libtroupe.so" \
  "libtroupe-dev $libraries/cmake/Troupe/TroupeConfig.cmake" \
  "libtroupe-dev $libraries/pkgconfig/troupe.pc" "troupe usr/bin/troupe" \
  "troupe etc/default/troupe-node" "troupe usr/share/man/man1/troupe-node.1.gz" \
  "troupe usr/lib/systemd/system/troupe-node.service" \
  "troupe usr/share/doc/troupe/examples/troupe-alerts.yml" \
  "libtroupe-dev usr/share/doc/libtroupe-dev/examples/01_hello_graph.cpp"; do
  read -r package path <<<"$file"
  [ -e "$work/$package/$path" ] || [ -L "$work/$package/$path" ] || fail "$package has no $path"
done
cmp "$source/scripts/debian/troupe-node.default" "$work/root/etc/default/troupe-node"
# In a package the binary finds the library as the system's.
! objdump -p "$work/root/usr/bin/troupe" | grep -E 'RUNPATH|RPATH' ||
  fail "the packaged binary has a path of its own to its libraries"
export LD_LIBRARY_PATH=$work/root/$libraries
prefix=$work/root/usr

# The headers know nothing of the source tree or its build.
if grep -rlF -e "$source" -e "$build" "$prefix/include" "$work/root/$libraries/cmake" \
  "$work/root/$libraries/pkgconfig" "$prefix/share"; then
  fail "these files name the tree they were built in"
fi
for header in troupe cluster op; do
  [ -f "$prefix/include/troupe/$header.hpp" ] || fail "$header.hpp was not installed"
  [ ! -L "$prefix/include/troupe/$header.hpp" ] || fail "$header.hpp was installed as a link"
done

# The files that shells look for under these names, as the installed binary prints them.
for shell_file in bash:bash-completion/completions/troupe zsh:zsh/vendor-completions/_troupe \
  fish:fish/vendor_completions.d/troupe.fish; do
  "$prefix/bin/troupe" completions "${shell_file%%:*}" | cmp - "$prefix/share/${shell_file#*:}" ||
    fail "the completions of ${shell_file%%:*} are not installed"
done

# The documents of its JSON output, and of the reasons why a run hangs.
for document in cluster/inspect/INSPECTION.md:INSPECTION.md \
  actors/observe/INSPECTION.md:HANGS.md; do
  cmp "$source/${document%%:*}" "$prefix/share/doc/troupe/${document#*:}" ||
    fail "${document%%:*} is not installed"
done

# Installed without packages it is relocatable, and needs nothing beside itself.
cmake --install "$build" --prefix "$work/first" >"$work/install.log" 2>&1 ||
  fail "cmake --install fails:" "$work/install.log"
mv "$work/first" "$work/opt"
env -u LD_LIBRARY_PATH "$work/opt/bin/troupe" --version >"$work/version" ||
  fail "what cmake --install has installed does not run elsewhere"
grep -qx "troupe ${version%-*}" "$work/version" || fail "it has another version:" "$work/version"
[ -f "$work/opt/etc/default/troupe-node" ] || fail "cmake --install leaves out etc/default"

cmake -S "$source/test/package" -B "$work/by_cmake" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log" 2>&1 || fail "CMake:" "$work/cmake.log"
CCACHE_DISABLE=1 cmake --build "$work/by_cmake" >"$work/build.log" 2>&1 ||
  fail "building by CMake:" "$work/build.log"
env -u LD_LIBRARY_PATH "$work/by_cmake/list_ops" >"$work/by_cmake.txt"

export PKG_CONFIG_PATH=$work/root/$libraries/pkgconfig
read -ra flags < <(pkg-config --cflags troupe)
read -ra libraries < <(pkg-config --libs troupe)
export CCACHE_DISABLE=1
start=$(date +%s%N)
c++ -O2 -c "$source/test/package/main.cpp" -o "$work/main.o" "${flags[@]}"
took=$((($(date +%s%N) - start) / 1000000))
echo "a program of $(wc -l <"$source/test/package/main.cpp") lines compiled in $took ms"
c++ -O2 "$work/main.o" "$source/test/package/node.cpp" "$source/test/package/own_op.cpp" \
  -o "$work/by_pkg_config" "${flags[@]}" "${libraries[@]}"
"$work/by_pkg_config" >"$work/by_pkg_config.txt"
cmp "$work/by_cmake.txt" "$work/by_pkg_config.txt"

# Every op of the source is listed, and by the installed binary too.
find "$source"/*/library -name '*.cpp' -print0 |
  xargs -0 sed -nE 's/^TROUPE_OP\(([A-Za-z0-9_]+)\).*/\1/p' |
  sort >"$work/declared.txt"
[ "$(wc -l <"$work/declared.txt")" -gt 100 ] || fail "the source declares hardly any op"
sed -n 's/^\([A-Za-z0-9_]*\): .*/\1/p' "$work/by_cmake.txt" | sort >"$work/all.txt"
grep -qx UsersTwice "$work/all.txt" || fail "the user's own op is not listed"
grep -vx UsersTwice "$work/all.txt" >"$work/listed.txt"
missing=$(comm -23 "$work/declared.txt" "$work/listed.txt")
[ -z "$missing" ] || fail "declared but not listed: $missing"
"$prefix/bin/troupe" ops >"$work/troupe_ops.txt"
while IFS= read -r op; do
  grep -q "^$op " "$work/troupe_ops.txt" || fail "troupe ops does not list $op"
done <"$work/listed.txt"
"$prefix/bin/troupe" doctor | tail -1
echo "$(wc -l <"$work/listed.txt") ops, $(wc -l <"$work/declared.txt") of them named in the source"
