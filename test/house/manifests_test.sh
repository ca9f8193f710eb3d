#!/usr/bin/env bash
# test/house/manifests_test.sh SOURCE BUILD: do the systemd unit, the Kubernetes manifests, the
# Dockerfile and the Slurm script agree with each other and with the program?
#
# The unit's node starts with the flags of /etc/default/troupe-node, pods and the Job as the
# manifests have them (pods.sh).
set -uo pipefail
# shellcheck source=scripts/machines.sh
. "$1/scripts/machines.sh"
source=$1 troupe=$2/troupe
failures=0
complain() {
  echo "$1"
  failures=$((failures + 1))
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checked=() missing=() denied=

if command -v systemd-analyze >/dev/null; then
  # The binary is not installed here: the one that was built stands in.
  sed "s|/usr/bin/troupe|$troupe|" "$source/scripts/systemd/troupe-node.service" \
    >"$work/troupe-node.service"
  out=$(systemd-analyze verify --man=no "$work/troupe-node.service" 2>&1) && [ -z "$out" ] ||
    complain "systemd-analyze verify: $out"
  sed 's|^Type=notify|Type=notifies|' "$work/troupe-node.service" >"$work/broken.service"
  out=$(systemd-analyze verify --man=no "$work/broken.service" 2>&1)
  grep -q notifies <<<"$out" ||
    complain "systemd-analyze verify does not see a planted mistake: $out"
  checked+=(systemd)
else
  missing+=(systemd-analyze)
fi

# Slurm starts the job anew after a loss, and gives the program time to save.
for line in --requeue --signal=B:USR1@120; do
  grep -qx -- "#SBATCH $line" "$source/scripts/slurm/troupe.sbatch" ||
    complain "troupe.sbatch has no line #SBATCH $line"
done

# The service does not restart after errors that a restart cannot repair. Memory has a limit, and
# each file of the keys is a credential with a stand-in, by the names that `troupe keygen` and
# /etc/default/troupe-node have.
unit=$source/scripts/systemd/troupe-node.service default=$source/scripts/debian/troupe-node.default
for line in Restart=on-failure RestartPreventExitStatus=2 'MemoryMax=[0-9]+%' \
  EnvironmentFile=-/etc/default/troupe-node; do
  grep -qxE -- "$line" "$unit" || complain "the unit has no line $line"
done
"$troupe" keygen --keys "$work/service" --name service >/dev/null 2>&1 ||
  complain "no keys are made"
for file in $(ls "$work/service") http.token; do
  grep -qx "LoadCredential=$file:/etc/troupe/keys/$file" "$unit" &&
    grep -q "^SetCredential=$file:." "$unit" ||
    complain "the unit loads no credential $file, or has nothing for one that is not there"
done
folder=/run/credentials/troupe-node.service
grep -qx "#TROUPE_KEYS=$folder" "$default" &&
  grep -qx "#TROUPE_HTTP_TOKEN_FILE=$folder/http.token" "$default" ||
  complain "troupe-node.default does not lead to the unit's credentials"
for variable in $(sed -nE 's/^#?([A-Z_]+)=.*/\1/p' "$default"); do
  [ "$variable" = TROUPE_NODE_FLAGS ] ||
    grep -rq "\"$variable\"" "$source/apps" "$source/cluster/membership" ||
    complain "troupe-node.default sets $variable, which nothing reads"
done
# As root it reads what systemd makes of a credential that is missing, and refuses it with status 2.
echo missing >"$work/service/node.key"
out=$("$troupe" node --listen tcp://127.0.0.1:0 --keys "$work/service" 2>&1)
[ $? -eq 2 ] && grep -q 'node.key:1' <<<"$out" ||
  complain "a key that is missing is not refused: $out"
checked+=('the environment of the unit')

python3 -c 'import yaml' 2>/dev/null || missing+=(python3-yaml)

if python3 -c 'import yaml' 2>/dev/null; then
  out=$(python3 "$source/test/house/manifests.py" "$source/scripts/kubernetes" \
    "$source/CMakeLists.txt") || complain 'the manifests cannot be read'
  [ -z "$out" ] || complain "in the manifests these are not as they should be: $out"
  for flag in $(python3 -c '
import sys, yaml
job = [d for d in yaml.safe_load_all(open(sys.argv[1])) if d["kind"] == "Job"][0]
container = job["spec"]["template"]["spec"]["containers"][0]
print(*{a.split("=")[0] for a in container["args"]}, "--save", "--resume")' \
    "$source/scripts/kubernetes/training.yaml"); do
    "$2/examples/char_lm" --help | grep -c -- " $flag " >/dev/null ||
      complain "training.yaml uses $flag, and char_lm has no such flag"
  done
  checked+=(Kubernetes)
fi

# The unit with the flags of troupe-node.default, and free ports of loopback in the place of theirs.
# started LABEL LOG PID: it says that it listens.
started() {
  local waited=0
  until grep -q ' listens at ' "$2" 2>/dev/null; do
    if ! kill -0 "$3" 2>/dev/null || [ $((waited += 1)) -gt 600 ]; then
      complain "$1 does not start: $(cat "$2")"
      return 1
    fi
    read -rt 0.1 _ <>"$work/nothing" || true
  done
}
mkfifo "$work/nothing"
# So many free ports in a row.
ports() {
  python3 - "$1" <<'PYTHON'
import random, socket, sys
n = int(sys.argv[1])
while True:
    first = random.randrange(20000, 32000)
    sockets = [socket.socket() for _ in range(n)]
    try:
        for i, s in enumerate(sockets):
            s.bind(("127.0.0.1", first + i))
        print(first)
        break
    except OSError:
        pass
    finally:
        for s in sockets:
            s.close()
PYTHON
}
# ZeroMQ's library is not instrumented: TSan would report it.
if [[ $troupe != *tsan* ]] && command -v python3 >/dev/null; then
  example=$(sed -n 's/^TROUPE_NODE_FLAGS="\(.*\)"$/\1/p' "$default")
  [ -n "$example" ] || complain 'troupe-node.default has no flags'
  command=$(sed -n 's/^ExecStart=//p' "$source/scripts/systemd/troupe-node.service")
  for http in 7200 7118; do  # the port that large payload would have gives way
    first=$(ports 4)
    own_http=$((http == 7118 ? first + 1 : first + 3))
    flags=$(sed "s/7117/$first/; s/--http [0-9]*/--http $own_http/" <<<"$example")
    # shellcheck disable=SC2086  # words, as systemd makes of them
    log=$work/unit-$http.log  # another's would say already that it listens
    TROUPE_NODE_FLAGS=$flags bash -c "exec ${command/\/usr\/bin\/troupe/$troupe}" >"$log" 2>&1 &
    started "the unit with '$flags'" "$log" $! && kill -TERM $!
    wait $! || complain "the unit's node ends with $?: $(cat "$log")"
  done
  checked+=('the unit started')

  if python3 -c 'import yaml' 2>/dev/null; then
    if can_have_machines; then
      in_a_world "$source/test/house/pods.sh" "$source" "$2" "$work" &
      wait $! || complain "the manifest's pods are not as they should be"
      checked+=('pods started')
    else
      denied="pods: namespaces, a bridge and veth cannot be had here"
    fi
  fi
fi

help=$("$troupe" node --help)
flags='--(listen|http|keys|join|name|patience|labels)[a-z-]*'
for flag in $(grep -ohE -- "$flags" "$default" "$source/scripts/kubernetes/troupe.yaml" \
  "$source/scripts/slurm/troupe.sbatch" | sort -u); do
  grep -q -- "$flag" <<<"$help" ||
    complain "the manifests use $flag, and 'troupe node' has no such flag"
done
bash -n "$source/scripts/slurm/troupe.sbatch" || complain 'troupe.sbatch is no script'
out=$("$source/scripts/slurm/troupe.sbatch" 2>&1) &&
  complain 'troupe.sbatch takes no program for one'
grep -q 'name the program to run' <<<"$out" || complain "troupe.sbatch without a program: $out"
checked+=(Slurm)
echo "checked: ${checked[*]}"
[ "$failures" = 0 ] || exit 1
[ ${#missing[@]} = 0 ] || echo "skipped for want of ${missing[*]} (scripts/setup installs them)"
[ -z "$denied" ] || echo "skipped: $denied"
[ ${#missing[@]} = 0 ] && [ -z "$denied" ] || exit 77
