#!/usr/bin/env bash
# scripts/checks/packages.sh BUILD: do the Debian packages work in a fresh Debian 12?
#
# Packs them, has lintian judge them, makes a minimal Debian 12 in build/, runs the commands of the
# Dockerfile there, which install the packages and build char_lm against libtroupe-dev, and then:
# the program, its service's unit, a node as a user without rights, a training over three nodes, a
# user's program by CMake and by pkg-config, removal and purge, after which nothing is left.
#
# It needs root and five minutes; exit status 77 if debootstrap or lintian cannot be installed or a
# file system cannot be mounted.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit 0 ;; esac
build=$(cd "${1:?a build folder}" && pwd)
checks=$(cd "$(dirname "$0")" && pwd)
cd "$checks/../.."
# shellcheck source=scripts/checks/fresh_debian.sh
. scripts/checks/fresh_debian.sh
with_own_mounts "$checks/packages.sh" "$build"
scripts/checks/install.sh lintian dpkg-dev file
log=$(mktemp)
do_there() { # purpose, command
  in_debian "set -euo pipefail; trap 'kill \$(jobs -p) 2>/dev/null || true' EXIT
$2" >"$log" 2>&1 || fail "$1"
}
fail() {
  echo "packages: $1"
  tail -n 40 "$log"
  exit 1
}
# The RUN lines of a stage, as one command; mounts are there already.
commands_of() { # stage
  awk -v stage="$1" '
    /^FROM / { here = $NF == stage }
    { while (/\\$/) { sub(/ *\\$/, ""); line = line $0; if (getline <= 0) exit } ; line = line $0 }
    here && line ~ /^RUN / {
      sub(/^RUN /, "", line)
      gsub(/--mount=[^ ]* */, "", line)
      print line
    }
    { line = "" }' scripts/kubernetes/Dockerfile
}

make_debian
trap 'remove_debian; rm -f "$log"' EXIT
mkdir "$root/packages" "$root/user"
cpack --config "$build/CPackConfig.cmake" -B "$root/packages" >"$log" 2>&1 || fail "cpack fails"
lintian --allow-root --fail-on error,warning "$root"/packages/*.deb >"$log" 2>&1 ||
  fail "lintian has complaints"
cp test/package/{CMakeLists.txt,*.cpp} "$root/user"
version=$(sed -n '1s/^troupe (\(.*\)-.*) .*/\1/p' scripts/debian/changelog)

# A service that is installed is not enabled; systemd, installed later, would enable all there are.
do_there "systemd cannot be had" "apt-get update
  apt-get install -y --no-install-recommends systemd man-db"
do_there "the image of a node is not made" "$(commands_of node)"
do_there "the installed program does not run" "
  [ \"\$(troupe --version)\" = 'troupe $version' ]
  troupe doctor
  ldconfig -p | grep -F /libtroupe.so.0.1
  dpkg --verify troupe libtroupe0.1"
do_there "its unit is not well" "
  systemd-analyze verify /lib/systemd/system/troupe-node.service 2>&1 |
  tee /dev/stderr | (! grep troupe)
  ! systemctl is-enabled troupe-node"
do_there "its manual pages are not found" "
  export MANPAGER=cat MANWIDTH=100
  apropos -s 1 '^troupe-node\$' || { mandb -q && apropos -s 1 '^troupe-node\$'; }
  man troupe-node | grep -F 'tcp://127.0.0.1:7117'"
do_there "a node does not serve, or does not leave" "
  cd /tmp
  setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs env STATE_DIRECTORY=/tmp/state \
    troupe node --name fresh --listen tcp://127.0.0.1:0 --http 0 >/tmp/node.log 2>&1 &
  node=\$!
  until grep -q ' listens at ' /tmp/node.log; do
    kill -0 \$node || { cat /tmp/node.log && exit 1; }
    sleep 0.1
  done
  page=\$(grep -o 'http://[^ ]*' /tmp/node.log)
  troupe ps --node \$page
  troupe ps --node \$page | grep -E '^fresh +alive '
  troupe metrics --node \$page | grep -F troupe_members
  kill -TERM \$node
  wait \$node"

do_there "the example is not built against the package" "$(commands_of build)"
do_there "the training's image lacks a package" "$(commands_of training)"
do_there "the training over three nodes fails" "
  cd /tmp
  mkdir -p home && export HOME=/tmp/home
  troupe keygen --keys keys --name three
  troupe node --standalone 3 --name n --keys keys --workers 1 >/tmp/nodes.log 2>&1 &
  nodes=\$!
  until [ \$(grep -c ' listens at ' /tmp/nodes.log) -ge 3 ]; do
    kill -0 \$nodes || { cat /tmp/nodes.log && exit 1; }
    sleep 0.1
  done
  at=\$(sed -n \"s/.*'n-1' listens at \\\\([^ ]*\\\\).*/\\\\1/p\" /tmp/nodes.log)
  /build/char_lm --hidden 16 --steps 5 --validate-every 1 --sample-chars 0 --no-save \
    --keys keys --join \$at --nodes n-1,n-2,n-3
  kill -TERM \$nodes
  wait \$nodes"
do_there "a user's program is not built or does not run" "
  apt-get update && apt-get install -y --no-install-recommends pkg-config
  cd /user
  cmake -B by_cmake -DCMAKE_BUILD_TYPE=Release && cmake --build by_cmake && by_cmake/list_ops
  c++ main.cpp node.cpp own_op.cpp -o by_pkg_config \$(pkg-config --cflags --libs troupe)
  ./by_pkg_config | grep -E '^[0-9]+ operations\$'"

do_there "removal fails" "
  mkdir -p /var/lib/troupe/flight /etc/troupe/keys
  echo '# changed' >>/etc/default/troupe-node
  apt-get remove -y troupe libtroupe-dev libtroupe0.1
  grep -F '# changed' /etc/default/troupe-node
  ! command -v troupe"
do_there "purge leaves something behind" "
  dpkg --purge troupe libtroupe-dev libtroupe0.1
  [ -d /etc/troupe/keys ] # the administrator's
  left=\$(find / -xdev \\( -path /packages -o -path /user -o -path /build -o -path /tmp \
    -o -path /proc -o -path /var/cache/man -o -path /etc/troupe \\) -prune \
    -o -iname '*troupe*' -print)
  [ -z \"\$left\" ] || { echo \"\$left\" && exit 1; }"
echo "$(find "$root/packages" -maxdepth 1 -name '*.deb' | wc -l) packages install, work and leave"
