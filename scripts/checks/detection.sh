#!/usr/bin/env bash
# scripts/checks/detection.sh BUILD [SECONDS]: checks the failure detector of three nodes on this
# machine.
#
# First a node is killed with -9, and started again, ten times: prints how long the others take to
# declare it dead (budget on a quiet machine: 2 s). Then 16 processes are busy for SECONDS, by
# default 600: no node may declare another dead. Prints suspicions and refutations.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit 0 ;; esac
build=$(cd "${1:?a build folder}" && pwd)
seconds=${2:-600}
work=$(mktemp -d)
busy=() nodes=(0 0 0 0)
end() {
  kill "${busy[@]}" "${nodes[@]:1}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap end EXIT
trap 'exit 143' TERM INT HUP
cd "$work"
fail() {
  echo "detection: $1"
  for log in "$work"/*.log; do echo "--- $(basename "$log")" && tail -n 15 "$log"; done
  exit 1
}

# start I [FLAG...]: node nI, whose addresses stand in its log.
start() {
  local i=$1
  shift
  "$build/troupe" node --name "n$i" --listen tcp://127.0.0.1:0 --http 0 --workers 1 "$@" \
    >"n$i.log" 2>"n$i.err" &
  nodes[i]=$!
  for _ in $(seq 600); do
    ! grep -q 'http://' "n$i.log" || return 0
    sleep 0.1
  done
  fail "node n$i does not start"
}
address() { sed -n 's|.* listens at \(tcp://[0-9.:]*\).*|\1|p' "n$1.log"; }
page() { sed -n 's|.* and \(http://[0-9.:]*\).*|\1|p' "n$1.log"; }
# state_of NODE SEEN-BY
state_of() {
  "$build/troupe" ps --node "$(page "$2" | sed 's|http://||')" 2>/dev/null |
    awk -v n="n$1" '$1 == n {print $2; exit}'
}
# await NODE STATE SEEN-BY
await() {
  for _ in $(seq 3000); do
    [ "$(state_of "$1" "$3")" != "$2" ] || return 0
    sleep 0.02
  done
  fail "node n$1 is '$(state_of "$1" "$3")' for n$3, not '$2'"
}
total() { # NAME: its sum over the nodes
  for i in 1 2 3; do curl -sf "$(page $i)/metrics" || fail "n$i has no metrics"; done |
    awk -v n="troupe_membership_$1_total" '$1 == n {all += $2; ++found}
      END {if (found == 3) print all + 0; else exit 1}' || fail "not each node counts $1"
}

start 1
start 2 --join "$(address 1)"
for _ in $(seq 10); do
  start 3 --join "$(address 1)"
  await 3 alive 1
  await 3 alive 2
  kill -9 "${nodes[3]}"
  began=$(date +%s%N)
  await 3 dead 1
  echo $((($(date +%s%N) - began) / 1000000)) >>took.txt
  wait "${nodes[3]}" 2>/dev/null || true
  rm n3.log
done
sort -n took.txt | awk '{t[NR] = $1} END {
  printf "detection: dead after %.2f to %.2f s, median %.2f s (budget 2 s)\n",
    t[1] / 1000, t[NR] / 1000, t[int((NR + 1) / 2)] / 1000}'

start 3 --join "$(address 1)"
for i in 1 2 3; do for j in 1 2 3; do [ $i = $j ] || await $i alive $j; done; done
deaths=$(total deaths)
for _ in {1..16}; do
  (while :; do :; done) &
  busy+=($!)
done
sleep "$seconds"
kill "${busy[@]}" && busy=()
later=$(total deaths)
echo "detection: beside 16 busy processes for $seconds s: $((later - deaths)) deaths," \
  "$(total suspicions) suspicions and $(total refutations) refutations in all"
[ "$later" = "$deaths" ] || fail "a healthy node was declared dead"
