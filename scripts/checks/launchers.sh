#!/usr/bin/env bash
# scripts/checks/launchers.sh BUILD: checks that nodes started by mpirun and Slurm find each other,
# and leave on request.
#
# Three machines with addresses of their own, as far as nodes can detect: network namespaces behind
# a bridge. They run Open MPI, MPICH, and a real Slurm, which runs troupe.sbatch unchanged: a
# training over its nodes, a program that fails, a job that is cancelled, mpirun within a job. Each
# machine takes its own name for 127.0.1.1, as Debian's installer does, and has a disk of its own,
# with its copy of the keys and its nodes' files. The machines share the installation, the text, and
# the files that launchers read and print.
#
# Installs Open MPI, MPICH and Slurm if it may; none of their daemons start then or later. All its
# processes are in a namespace of processes and end with it. Exit status 77 if that is not possible.
set -euo pipefail
# shellcheck source=scripts/machines.sh
. "$(dirname "$0")/../machines.sh"
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit 0 ;; esac

missing() { echo "$1" && exit 77; }

# Installs Debian's packages; none of their services is started, now or at the next boot.
install() {
  local policy=/usr/sbin/policy-rc.d daemon got=0 unknown=()
  for daemon in munge slurmd slurmctld; do
    command -v "${daemon/%munge/munged}" >/dev/null || unknown+=("$daemon")
  done
  if [ -e $policy ]; then
    policy=
  else
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy
  fi
  env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    -o DPkg::Lock::Timeout=300 openmpi-bin mpich munge slurmctld slurmd slurm-client iproute2 \
    procps >/dev/null 2>&1 || got=$?
  [ -z "$policy" ] || { rm -f $policy && trap - EXIT; }
  if [ ${#unknown[@]} -gt 0 ] && command -v systemctl >/dev/null; then
    systemctl disable "${unknown[@]}" >/dev/null 2>&1 || true
  fi
  return $got
}

if [ "${1:-}" != --within ]; then
  build=$(cd "${1:?a build folder}" && pwd)
  for program in troupe examples/char_lm; do
    [ -x "$build/$program" ] || missing "there is no $build/$program; scripts/build makes it"
  done
  [ "$(id -u)" -eq 0 ] || missing "machines of their own are root's to make"
  for program in mpirun.openmpi mpirun.mpich munged slurmctld slurmd sbatch ip pgrep; do
    command -v $program >/dev/null || {
      install || missing "Debian's packages of Open MPI, MPICH and Slurm cannot be had" && break
    }
  done
  can_have_machines || missing "namespaces, a bridge and veth cannot be had here"
  work=$(mktemp -d)
  # When the first process ends, all others end, and the namespaces with them.
  in_a_world "$0" --within "$build" "$work" &
  all=$!
  trap 'kill -KILL $all 2>/dev/null || true; wait $all 2>/dev/null || true; rm -rf "$work"' EXIT
  trap 'exit 143' TERM INT HUP
  wait $all
  exit
fi

build=$2 work=$3
source=$(cd "$(dirname "$0")/../.." && pwd)
own=$work/own  # each machine's disk
export PATH="$build:$PATH" TMPDIR="$work" STATE_DIRECTORY="$own/state" \
  SLURM_CONF="$work/slurm.conf" KEYS="$own/keys"
for variable in $(compgen -e | grep -E '^(TROUPE|SLURM|OMPI|PMI)_' | grep -v '^SLURM_CONF$'); do
  unset "$variable"
done
chmod 755 "$work"  # munged requires that of its socket's folder
mkdir "$own" "$work/slurmctld"

fail() { # sentence, file...
  echo "$1"
  shift
  for file in "$@"; do
    [ ! -s "$file" ] || { echo "--- $(basename "$file")" && tail -n 40 "$file"; }
  done
  exit 1
}

# The machines host1, host2 and host3, and head with Slurm's controller: this one.
make_lan head 10.77.17.254
troupe keygen --keys "$work/keys" --name troupe >/dev/null 2>&1 || fail "no keys are made"
hosts=$(printf '127.0.0.1 localhost\n10.77.17.254 head\n' &&
  printf '10.77.17.%d host%d\n' 1 1 2 2 3 3)
for i in 1 2 3; do
  echo "${hosts/10.77.17.$i /127.0.1.1 }" >"$work/hosts$i"
  add_machine $i host$i 10.77.17.$i "$work/hosts$i"
  echo "${machines[i]}" >"$work/host$i.pid"
  add_disk $i "$own"
  copy_to $i "$work/keys" "$own"
  on $i mkdir "$own/state"
done
echo "$hosts" >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts
rm -r "$work/keys"

# mpirun. This script replaces ssh.
cat >"$work/ssh" <<'SSH'
#!/bin/bash
while [[ $1 = -* ]]; do shift; done
machine=$1
shift
exec nsenter --target "$(cat "$(dirname "$0")/$machine.pid")" --net --uts --mount --root --wd \
  bash -c "$*"
SSH
# Runs a rank, and writes the exit status of its node.
cat >"$work/rank" <<'RANK'
#!/bin/bash
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
troupe node --listen tcp://0.0.0.0:7117 --http 7200 --keys "$KEYS" --patience 120 &
node=$!
ended() {
  wait $node
  echo $? >"$(dirname "$0")/rank-$rank.ended"
  exit
}
trap 'kill -TERM $node; ended' TERM
wait $node
ended
RANK
chmod +x "$work/ssh" "$work/rank"
three='host1,host2,host3'
openmpi=(mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent "$work/ssh" --host "$three" -n 3)
mpich=(mpirun.mpich -launcher ssh -launcher-exec "$work/ssh" -hosts "$three" -n 3)

sees_all() { # machine, the prefix of the nodes' names
  [ "$(on "$1" troupe ps --node 7200 2>/dev/null | grep -cE "^$2-[012] +alive ")" = 3 ]
}
all_ended() { for rank in 0 1 2; do [ -s "$work/rank-$rank.ended" ] || return 1; done; }
gone() { ! kill -0 "$1" 2>/dev/null; }
refusals() { # how many at least, whose mpirun
  [ "$(grep -c "this is rank [12] of 3, and $2 does not say where the others are" \
    "$work/refused.log")" -ge "$1" ]
}

ranks() { # whose mpirun, the status it ends with on SIGTERM, command...
  local whose=$1 want=$2 got=0 launcher i
  shift 2
  exec_on 1 "$@" "$work/rank" >"$work/mpirun.log" 2>&1 &
  launcher=$!
  for i in 1 2 3; do
    within_bound sees_all $i rank ||
      fail "$whose: the node on host$i does not see three ranks" "$work/mpirun.log"
  done
  kill -TERM $launcher
  wait $launcher || got=$?
  [ $got = "$want" ] || fail "$whose: mpirun ends with $got, not $want" "$work/mpirun.log"
  within_bound all_ended || fail "$whose: not all ranks have left" "$work/mpirun.log"
  for i in 0 1 2; do
    [ "$(cat "$work/rank-$i.ended")" = 0 ] ||
      fail "$whose: the node of rank $i ends with $(cat "$work/rank-$i.ended")" "$work/mpirun.log"
  done
  rm "$work"/rank-?.ended
}
refused() { # whose mpirun, how many ranks at least explain it, command...
  local whose=$1 many=$2 launcher
  shift 2
  : >"$work/refused.log"
  exec_on 1 "$@" troupe node >"$work/refused.log" 2>&1 &
  launcher=$!
  within_bound refusals "$many" "$whose" ||
    fail "$whose: without TROUPE_JOIN ranks above 0 do not refuse to start" "$work/refused.log"
  # MPICH leaves rank 0 running; Open MPI ends all ranks with the first
  [ "$whose" != MPICH ] || kill -TERM $launcher
  within_bound gone $launcher || fail "$whose: mpirun does not end" "$work/refused.log"
}
# On SIGTERM Open MPI's mpirun ends with 1, whatever its ranks end with, and kills them after a
# second unless an option is set.
ranks "Open MPI" 1 "${openmpi[@]}" --mca odls_base_sigkill_timeout 3 -x TROUPE_JOIN=host1:7117
ranks MPICH 0 "${mpich[@]}" -genv TROUPE_JOIN host1:7117
refused "Open MPI" 1 "${openmpi[@]}"
refused MPICH 2 "${mpich[@]}"
echo "Open MPI and MPICH: three ranks on three machines see each other, and leave with 0; without \
TROUPE_JOIN those above 0 refuse"

# Slurm.
(umask 077 && head -c 1024 /dev/urandom >"$work/munge.key")
munged --foreground --force --key-file="$work/munge.key" --socket="$work/munge.socket" \
  --pid-file="$work/munge.pid" --log-file="$work/munge.log" \
  --seed-file="$work/munge.seed" >"$work/munged.log" 2>&1 &
cat >"$SLURM_CONF" <<CONF
ClusterName=troupe
SlurmctldHost=head(10.77.17.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$work/munge.socket
StateSaveLocation=$work/slurmctld
SlurmdSpoolDir=$work/slurmd-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
PlugStackConfig=$work/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=host[1-3] NodeAddr=10.77.17.[1-3] CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
touch "$work/plugstack.conf"
slurmctld -D >"$work/slurmctld.log" 2>&1 &
for i in 1 2 3; do on $i slurmd -D >"$work/slurmd-host$i.log" 2>&1 & done
is_idle() { [ "$(timeout 10 sinfo --noheader --format='%T %D' 2>/dev/null)" = 'idle 3' ]; }
within_bound is_idle || fail "Slurm does not start" "$work"/{munged,slurmctld,slurmd-host1}.log

state() {
  timeout 10 scontrol show job "$1" 2>/dev/null | grep -oE 'JobState=[A-Z_]+|ExitCode=[0-9:]+' |
    sed 's/.*=//' | paste -sd' '
}
has_ended() { ! [[ $(state "$1") =~ ^(PENDING|RUNNING|COMPLETING|)( |$) ]] && is_idle; }
submit() { # its name, arguments of sbatch...
  local name=$1
  shift
  job=$(cd "$work" &&
    sbatch --parsable --nodes=3 --output="$work/$name.out" "$@" 2>"$work/sbatch.log") ||
    fail "sbatch does not take the job" "$work/sbatch.log"
}
ends() { # its name, how it ends
  within_bound has_ended "$job" || fail "the job '$1' does not end: $(state "$job")" "$work/$1.out"
  [[ $(state "$job") = "$2" ]] || fail "the job '$1' ends as $(state "$job"), not $2" "$work/$1.out"
}
leave() { # the job's name: its nodes leave
  for i in 0 1 2; do
    grep -qax "node 'troupe-$i' leaves" "$work/$1.out" ||
      fail "the job '$1' ends without a word from troupe-$i" "$work/$1.out"
  done
  ! grep -qaE 'task [0-9]+: ' "$work/$1.out" ||
    fail "nodes of the job '$1' do not end with 0" "$work/$1.out"
}
has_stepped() { grep -qaE '^step +[1-9]' "$work/$1.out" 2>/dev/null; }

cat >"$work/train" <<TRAIN
#!/bin/bash
exec "$build/examples/char_lm" --text "$source/test/bench/RESULTS.md" --hidden 16 \\
  --sample-chars 0 --no-save --join "\$TROUPE_JOIN" --nodes troupe-0,troupe-1,troupe-2 \\
  --keys "\$TROUPE_KEYS" --validate-every 5 --steps "\$1"
TRAIN
chmod +x "$work/train"
script=$source/scripts/slurm/troupe.sbatch

submit training "$script" ./train 10
ends training 'COMPLETED 0:0'
grep -qaE '^step +10 of 10 ' "$work/training.out" ||
  fail "the training over Slurm's nodes is not done" "$work/training.out"
leave training
submit failing "$script" bash -c 'exit 3'
ends failing 'FAILED 3:0'
submit cancelled "$script" ./train 1000000000
within_bound has_stepped cancelled ||
  fail "the training over Slurm's nodes does not begin" "$work/cancelled.out"
scancel "$job"
ends cancelled 'CANCELLED 0:15'
# Its time is up: it saves, its nodes leave, it is queued again, goes on from its save and ends.
submit going-on "$script" bash -c '
  [ -n "${SLURM_RESTART_COUNT:-}" ] && given=(--resume "$0" --seconds 2) ||
    given=(--save "$0" --hidden 16 --steps 1000000000)
  exec "$1/examples/char_lm" --text "$2" --sample-chars 0 --validate-every 5 "${given[@]}" \
    --join "$TROUPE_JOIN" --nodes troupe-0,troupe-1,troupe-2 --keys "$TROUPE_KEYS"' \
  "$work/saved.safetensors" "$build" "$source/test/bench/RESULTS.md"
within_bound has_stepped going-on ||
  fail "the training that is to go on does not begin" "$work/going-on.out"
scontrol show job "$job" | grep -c ' Requeue=1 ' >/dev/null ||
  fail "the job would not begin anew after a machine has failed"
scancel --batch --signal=USR1 "$job"
has_requeued() { scontrol show job "$job" 2>/dev/null | grep -c ' Restarts=1 ' >/dev/null; }
within_bound has_requeued ||
  fail "the job is not queued again at the end of its time" "$work/going-on.out"
# Slurm lets it wait for two minutes, in case its machine is at fault.
begins_again() {
  scontrol update "JobId=$job" StartTime=now 2>/dev/null || true
  [[ $(state "$job") != PENDING* ]]
}
within_bound begins_again ||
  fail "the job that was queued again does not begin" "$work/going-on.out"
ends going-on 'COMPLETED 0:0'
grep -qa 'saved.safetensors continues after step ' "$work/going-on.out" ||
  fail "the job that was queued again does not go on from its save" "$work/going-on.out"
leave going-on

! pgrep -x troupe >"$work/left" ||
  fail "nodes of the cancelled job are there still" "$work/left" "$work/cancelled.out"
for i in 1 2 3; do on $i test -s "$KEYS/node.key" || fail "host$i has lost its keys"; done
[ -z "$(ls -A "$own")" ] ||
  fail "what is each machine's own is on a disk that they share: $(ls -A "$own")"
echo "Slurm: troupe.sbatch runs a training over three machines; its nodes leave when it is done, \
none stays of a job that is cancelled; who fails is told; at the end of its time it saves, and \
goes on later"

submit mpirun --ntasks-per-node=1 \
  --wrap "exec mpirun.openmpi --allow-run-as-root -x TROUPE_JOIN=host1:7117 -n 3 '$work/rank'"
for i in 1 2 3; do
  within_bound sees_all $i rank ||
    fail "mpirun in a job of Slurm: the node on host$i does not see three ranks" "$work/mpirun.out"
done
scancel "$job"
within_bound has_ended "$job" ||
  fail "mpirun in a job of Slurm does not end" "$work/mpirun.out"
echo "Open MPI within a job of Slurm: three ranks see each other"
