#!/usr/bin/env bash
# scripts/checks/promtool.sh BUILD: prints the path of promtool.
#
# It is the installed one, or else the one of Debian's package of Prometheus, which is unpacked in
# the build and not installed: no daemon starts. Exit status 77 if the package cannot be had.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit 0 ;; esac
build=$(cd "${1:?a build folder}" && pwd)
promtool=$(command -v promtool || echo "$build/promtool/usr/bin/promtool")
if [ ! -x "$promtool" ]; then
  mkdir -p "$build/promtool"
  (cd "$build/promtool" && apt-get download prometheus >/dev/null 2>&1 &&
    dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb) ||
    { echo "Debian's package of Prometheus cannot be had" && exit 77; }
fi
echo "$promtool"
