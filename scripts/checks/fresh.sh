#!/usr/bin/env bash
# scripts/checks/fresh.sh [COMMAND]: does the tree build and pass its tests on a fresh machine?
#
# Makes a minimal Debian 12 in build/ with debootstrap, copies the last commit into it, has bash run
# `scripts/demo --steps 20` and `scripts/test` there, or COMMAND, and removes it. The mirror and the
# proxy are this machine's. It needs root, 10 GB and 40 minutes; with TROUPE_FRESH_CACHE=1, which
# gives it this machine's compiler cache, less. Exit status 77 if debootstrap cannot be installed or
# a file system cannot be mounted.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit 0 ;; esac
checks=$(cd "$(dirname "$0")" && pwd)
cd "$checks/../.."
# shellcheck source=scripts/checks/fresh_debian.sh
. scripts/checks/fresh_debian.sh

command=${1:-'scripts/demo --steps 20 && scripts/test'}
with_own_mounts "$checks/fresh.sh" "$command"
make_debian
# The folder's name is in no file of the packages, whose test looks for it.
mkdir "$root/srv/clone"
git archive HEAD | tar -xf - -C "$root/srv/clone"
if [ -n "${TROUPE_FRESH_CACHE:-}" ]; then
  mkdir -p "$root/root/.cache/ccache"
  mount --bind "$(ccache -k cache_dir)" "$root/root/.cache/ccache"
fi
in_debian "cd /srv/clone && { $command; }" ||
  { status=$? && echo "'$command' ends with $status on a fresh machine" && exit 1; }
