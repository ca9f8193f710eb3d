#!/usr/bin/env bash
# scripts/checks/metrics.sh BUILD: does promtool accept what a node tells Prometheus?
#
# promtool comes out of Debian's package of Prometheus, which is unpacked beside the build and not installed: no daemon
# starts. Exit status 77 where the package cannot be had.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit 0 ;; esac
build=$(cd "${1:?a build folder}" && pwd)
promtool=$(command -v promtool || echo "$build/promtool/usr/bin/promtool")
if [ ! -x "$promtool" ]; then
  mkdir -p "$build/promtool"
  (cd "$build/promtool" && apt-get download prometheus >/dev/null 2>&1 && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb) ||
    { echo "Debian's package of Prometheus cannot be had" && exit 77; }
fi
work=$(mktemp -d)
"$build/troupe" node --listen tcp://127.0.0.1:0 --name 'm' --workers 1 --http 0 >"$work/out" &
node=$!
trap 'kill $node 2>/dev/null || true; wait $node 2>/dev/null || true; rm -rf "$work"' EXIT
until grep -q http "$work/out"; do
  kill -0 "$node" 2>/dev/null || { echo "the node has ended" && exit 1; }
  sleep 0.1
done
"$build/troupe" metrics --node "$(grep -o 'http://[^ ]*' "$work/out")" >"$work/metrics"
"$promtool" check metrics <"$work/metrics"
