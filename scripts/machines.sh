# shellcheck shell=bash
# Machines with addresses and disks of their own, as far as nodes can detect: namespaces of
# networks, mounts and host names behind a bridge. Sourced.
#
#   can_have_machines || exit 77
#   in_a_world "$0" --within ...          # a shell that is process 1: its children end with it
#   make_lan head 10.77.17.254            # within: this machine, with a bridge
#   add_machine 1 host1 10.77.17.1 HOSTS  # a machine behind it, with that file as its /etc/hosts
#   on 1 troupe node ...
#
# Without root the machines live in a namespace of users, if the system permits that.

bound=1200  # tenths of a second, on a machine that is busy
# within_bound COMMAND...: repeats the command until it succeeds or the bound has passed.
within_bound() {
  local waited=0
  until "$@"; do
    [ $((waited += 1)) -le $bound ] || return 1
    sleep 0.1
  done
}

world=(unshare --net --uts --mount --pid --fork --kill-child --mount-proc)
[ "$(id -u)" -eq 0 ] || world+=(--map-root-user)
can_have_machines() {
  "${world[@]}" sh -c 'ip link add lan type bridge && ip link add veth1 type veth peer name eth0 &&
    unshare --net --uts --mount true' >/dev/null 2>&1
}
# Replaces this shell; when it ends, for whatever reason, its children end with it.
in_a_world() { exec setpriv --pdeathsig KILL "${world[@]}" "$@"; }

make_lan() { # name, address
  [ $$ -eq 1 ] ||
    { echo "this would rename the machine that all else is on: in_a_world is for that" && exit 2; }
  hostname "$1"
  ip link set lo up
  ip link add lan type bridge
  ip addr add "$2/24" dev lan
  ip link set lan up
}

machines=()  # the first process of each
# exec_on: replaces this shell, so that `exec_on 1 COMMAND &` has the process of the command.
exec_on() { # number, command...
  local machine=$1
  shift
  exec nsenter --target "${machines[$machine]}" --net --uts --mount --root --wd "$@"
}
on() { (exec_on "$@"); }
is_apart() { [ "$(cat "/proc/$1/comm")" = sleep ]; }
add_machine() { # number, name, address, file
  unshare --net --uts --mount sleep infinity &
  machines[$1]=$!
  within_bound is_apart $! || { echo "a machine's namespaces do not come" && return 1; }
  ip link add "veth$1" type veth peer name eth0 netns "${machines[$1]}"
  ip link set "veth$1" master lan up
  on "$1" ip link set lo up
  on "$1" ip addr add "$3/24" dev eth0
  on "$1" ip link set eth0 up
  on "$1" hostname "$2"
  on "$1" mount --bind "$4" /etc/hosts
}
# A disk of its own, mounted at that folder.
add_disk() { on "$1" mount -t tmpfs own "$2"; }  # number, folder
# Copies a folder into one of the machine's, as scp does.
copy_to() { # number, folder, into
  tar -C "$(dirname "$2")" -cf - "$(basename "$2")" | on "$1" tar -C "$3" -xf -
}
