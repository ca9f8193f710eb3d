#!/usr/bin/env bash
# test/house/own_disks_test.sh SOURCE BUILD: machines without shared files form a cluster with keys,
# and a program's run over all of them yields the results of one process.
#
# Three machines and the program's, each with a private disk for its keys (made there; only a line
# of text is passed on), its home and temporary files. All else is read-only there, the build too.
# Exit status 77 where the system does not permit that.
set -euo pipefail
# shellcheck source=scripts/machines.sh
. "$1/scripts/machines.sh"
source=$(cd "$1" && pwd) build=$(cd "$2" && pwd)

if [ $# -lt 4 ]; then
  [ "$(id -u)" -eq 0 ] || { echo "to mount read-only what is there takes root" && exit 77; }
  can_have_machines || { echo "namespaces, a bridge and veth cannot be had here" && exit 77; }
  work=$(realpath "$(mktemp -d)")  # as the mounts are named
  trap 'rm -rf "$work"' EXIT
  trap 'exit 143' TERM INT HUP
  in_a_world "$0" "$source" "$build" within "$work" &
  wait $!
  exit
fi
work=$4
for variable in $(compgen -e | grep -E '^(TROUPE|SLURM|OMPI|PMI|XDG)_'); do unset "$variable"; done
disk=$work/disk
export HOME=$disk TMPDIR=$disk STATE_DIRECTORY=$disk/state PATH="$build:$build/examples:$PATH"

fail() {
  echo "$1"
  for log in "$work"/*.log; do
    [ ! -s "$log" ] || { echo "--- $(basename "$log")" && tail -n 20 "$log"; }
  done
  exit 1
}

# The machines a, b and c, and p, which is the program's.
names=(a b c p)
make_lan switch 10.77.18.254
printf '127.0.0.1 localhost\n10.77.18.1 a\n10.77.18.2 b\n10.77.18.3 c\n10.77.18.4 p\n' \
  >"$work/hosts"
mkdir "$disk"
read_only() { # all that is mounted on the machine but its disk and what is the kernel's
  local at type
  while read -r _ at type _; do
    case $type in proc | sysfs | devtmpfs | devpts | cgroup* | mqueue) continue ;; esac
    at=$(printf '%b' "$at")
    [ "$at" = "$disk" ] || on "$1" mount -o remount,bind,ro "$at" 2>/dev/null || true
  done < <(on "$1" cat /proc/mounts)
}
for i in 0 1 2 3; do
  add_machine $i ${names[i]} 10.77.18.$((i + 1)) "$work/hosts"
  add_disk $i "$disk"
  on $i mount -t tmpfs shm /dev/shm
  read_only $i
  for folder in "$work" "$source" "$build" /tmp /var/tmp; do
    ! on $i touch "$folder/own_disks_test" 2>/dev/null ||
      { rm -f "$folder/own_disks_test" && echo "$folder cannot be made read-only here" && exit 77; }
  done
  on $i mkdir "$disk/state"
done

# Without a key of its own no machine takes part, whatever others have.
key_of() {
  on "$1" troupe keygen --keys "$disk/keys" --name "${names[$1]}" 2>"$work/keygen.log" |
    cut -d' ' -f1
}
keys=("$(key_of 0)")
status=0
on 1 troupe node --keys "$disk/keys" --listen tcp://0.0.0.0:7117 >"$work/keyless.log" 2>&1 ||
  status=$?
[ $status != 0 ] && grep -qF "there is no $disk/keys/node.key" "$work/keyless.log" ||
  fail "machine b has keys that it never got ($status)"
for i in 1 2 3; do keys[i]=$(key_of $i); done
for i in 0 1 2 3; do
  for j in 0 1 2 3; do
    [ $i = $j ] ||
      on $i troupe keygen --keys "$disk/keys" --name ${names[j]} --authorize "${keys[j]}" \
        >"$work/keygen.log" 2>&1 ||
      fail "${names[i]} does not authorize ${names[j]}"
  done
done

nodes=()
for i in 2 1 0; do
  exec_on $i troupe node --listen tcp://0.0.0.0:7117 --join a:7117 --http 7200 \
    --keys "$disk/keys" --workers 1 --patience 120 >"$work/node-${names[i]}.log" 2>&1 &
  nodes[i]=$!
done
sees_all() { [ "$(on "$1" troupe ps --node 7200 2>/dev/null | grep -cE '^[abc] +alive ')" = 3 ]; }
for i in 0 1 2; do
  within_bound sees_all $i || fail "the node of machine ${names[i]} does not see three"
done

# Each step's loss and validation, within one of the last printed digit: sums over three nodes are
# in another order.
on 3 cp "$source/test/bench/RESULTS.md" "$disk/text"
train() {
  on 3 char_lm --text "$disk/text" --hidden 16 --steps 5 --validate-every 1 --sample-chars 0 "$@" \
    >"$work/train.log" 2>&1 || fail "the program ends with $?"
}
steps() {
  sed -nE 's/^step +([0-9]+) of 5 +(loss [0-9.]+ )? *validation ([0-9.]+) .*/\1 \2\3/p' \
    "$work/train.log"
}
train --no-save
alone=$(steps)
[ "$(wc -l <<<"$alone")" = 6 ] || fail "no five steps in one process"
received() {
  on "$1" troupe metrics --node 7200 | sed -n 's/^troupe_transport_received_bytes_total //p'
}
before=("$(received 0)" "$(received 1)" "$(received 2)")
train --join tcp://a:7117 --nodes a,b,c --keys "$disk/keys" --save "$disk/model.safetensors"
paste -d' ' <(steps) <(cat <<<"$alone") | awk '
  NF % 2 { exit differs = 1 }
  {
    for (i = 1; i <= NF / 2; ++i) {
      d = $i - $(i + NF / 2)
      if (d > 0.0011 || d < -0.0011) differs = 1
    }
  }
  END { exit differs || NR != 6 }' ||
  fail "over three machines it comes to"$'\n'"$(steps)"$'\n'"and in one process to"$'\n'"$alone"

# All three took part; the model is where the program is, and nowhere else.
for i in 0 1 2; do
  [ $(($(received $i) - before[i])) -gt 100000 ] ||
    fail "the node of machine ${names[i]} was sent no weights in five steps"
  ! on $i test -e "$disk/model.safetensors" || fail "the model of machine p is on ${names[i]}"
done
on 3 test -s "$disk/model.safetensors" || fail "the model is not on machine p"
[ -z "$(ls -A "$disk")" ] || fail "machines share $disk: $(ls -A "$disk")"

kill -TERM "${nodes[@]}"
for i in 0 1 2; do wait "${nodes[i]}" || fail "the node of machine ${names[i]} ends with $?"; done
last=$(tail -n 1 <<<"$alone")
echo "three machines with disks of their own: $last at the last of five steps, as in one process"
