#!/usr/bin/env bash
# scripts/checks/bystander.sh BUILD [SECONDS...]: checks that a training survives a cut of a node
# that takes no part in it.
#
# Four nodes with keys, each in a network namespace of its own behind a bridge, and char_lm on three
# of them. The link of the fourth goes down for 5, 20 and 60 s (SECONDS), and comes up again. The
# training must neither end nor restart, and take steps in each cut and after it. After each cut all
# nodes are alive for each other again. Then a node of the training is stopped for 20 s, and
# continues: the training goes on without it, and with it again.
# Exit status 77 if namespaces cannot be had.
set -euo pipefail
# shellcheck source=scripts/machines.sh
. "$(dirname "$0")/../machines.sh"
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit 0 ;; esac

if [ "${1:-}" != --within ]; then
  build=$(cd "${1:?a build folder}" && pwd)
  shift
  [ $# -gt 0 ] || set -- 5 20 60
  can_have_machines || { echo "namespaces, a bridge and veth cannot be had here" && exit 77; }
  work=$(mktemp -d)
  in_a_world "$0" --within "$build" "$work" "$@" &
  all=$!
  trap 'kill -KILL $all 2>/dev/null || true; wait $all 2>/dev/null || true; rm -rf "$work"' EXIT
  trap 'exit 143' TERM INT HUP
  wait $all
  exit
fi

build=$2 work=$3
shift 3
cuts=("$@") nodes=()
export PATH="$build:$build/examples:$PATH" TMPDIR="$work" STATE_DIRECTORY="$work/state"
cd "$work"
fail() {
  echo "bystander: $1"
  for log in "$work"/*.log; do echo "--- $(basename "$log")" && tail -n 15 "$log"; done
  exit 1
}

make_lan head 10.77.18.254
echo '127.0.0.1 localhost' >hosts
troupe keygen --keys keys --name troupe >/dev/null 2>&1 || fail "no keys are made"
for i in 1 2 3 4; do
  add_machine $i host$i 10.77.18.$i "$work/hosts"
  exec_on $i troupe node --listen "tcp://10.77.18.$i:7117" --name "n$i" --keys "$work/keys" \
    --http 7200 --join tcp://10.77.18.1:7117 --patience 120 >"n$i.log" 2>&1 &
  nodes[i]=$!
done
alive() { on "$1" troupe ps --node 7200 2>/dev/null | grep -cE '^n[1234] +alive ' || true; }
all_alive() { for i in 1 2 3 4; do [ "$(alive $i)" = 4 ] || return; done; }
within_bound all_alive || fail "the nodes do not find each other"

for i in $(seq 60); do echo "the cat watches the moon and $((i * i)) dogs"; done >text
weights=(--text text --hidden 16 --embedding 5 --length 12 --batch 6 --replicas 3 --workers 1
  --sample-chars 0)
steps_done() {
  grep -oE 'step +[0-9]+' training.log 2>/dev/null | tail -1 | grep -oE '[0-9]+' || echo 0
}
goes_on() { [ "$(steps_done)" -gt "$before" ]; }
# It trains until it has seen all cuts: an interrupt then ends it.
char_lm "${weights[@]}" --steps 100000000 --join tcp://10.77.18.1:7117 --nodes n1,n2,n3 \
  --keys keys --save trained --validate-every 10 --max-restarts 5 \
  --validate-characters 10 >training.log 2>&1 &
training=$!
before=0
within_bound goes_on || fail "the training does not begin"
for seconds in "${cuts[@]}"; do
  before=$(steps_done)
  ip link set veth4 down
  sleep "$seconds"
  ip link set veth4 up
  kill -0 $training 2>/dev/null || fail "the training has ended in a cut of $seconds s"
  within_bound goes_on || fail "the training stands still in a cut of $seconds s"
  within_bound all_alive || fail "the nodes do not find each other after a cut of $seconds s"
  before=$(steps_done)
  within_bound goes_on || fail "the training stands still after a cut of $seconds s"
done
! grep -qE 'restart [0-9]+ of' training.log || fail "the training has restarted"
kill -STOP "${nodes[2]}"
sleep 20
kill -CONT "${nodes[2]}"
uses() { grep -q "on $1 of 3 nodes" training.log; }
within_bound uses 2 || fail "the training does not go on without a node that is stopped"
within_bound uses 3 || fail "the training does not use a node that continues"
before=$(steps_done)
within_bound goes_on || fail "the training stands still after a node was stopped"
kill -INT $training
status=0
wait $training || status=$?
[ $status -eq 130 ] || fail "the training has ended with $status"
taken=$(steps_done)
echo "bystander: $taken steps over cuts of ${cuts[*]} s and a stop of 20 s"
