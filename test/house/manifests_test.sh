#!/usr/bin/env bash
# test/house/manifests_test.sh SOURCE BUILD: the systemd unit, the Kubernetes manifest and the Slurm script say what exists.
#
# What they start does start: the unit with its example's flags, pods as the manifest has them (pods.sh).
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
  sed "s|/usr/bin/troupe|$troupe|" "$source/scripts/systemd/troupe-node.service" >"$work/troupe-node.service"
  out=$(systemd-analyze verify "$work/troupe-node.service" 2>&1) && [ -z "$out" ] || complain "systemd-analyze verify: $out"
  sed 's|^Type=notify|Type=notifies|' "$work/troupe-node.service" >"$work/broken.service"
  out=$(systemd-analyze verify "$work/broken.service" 2>&1)
  grep -q notifies <<<"$out" || complain "systemd-analyze verify does not see a planted mistake: $out"
  checked+=(systemd)
else
  missing+=(systemd-analyze)
fi

python3 -c 'import yaml' 2>/dev/null || missing+=(python3-yaml)

if python3 -c 'import yaml' 2>/dev/null; then
  out=$(python3 - "$source/scripts/kubernetes/troupe.yaml" <<'PYTHON'
import sys, yaml
service, troupe = yaml.safe_load_all(open(sys.argv[1]))
pod = troupe["spec"]["template"]
node = pod["spec"]["containers"][0]
name = service["metadata"]["name"]
ports = {p["name"]: p["containerPort"] for p in node["ports"]}
flags = dict(a.lstrip("-").split("=", 1) for a in node["args"][1:])
wrong = [what for what, holds in {
    "kinds": (service["kind"], troupe["kind"]) == ("Service", "StatefulSet"),
    "a headless service": service["spec"]["clusterIP"] == "None",
    "the service of the set": troupe["spec"]["serviceName"] == name,
    "TROUPE_SERVICE": {"name": "TROUPE_SERVICE", "value": name} in node["env"],
    "whom the service finds": service["spec"]["selector"].items() <= pod["metadata"]["labels"].items(),
    "the set's own pods": troupe["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"],
    "the port that discovery assumes": flags["listen"].endswith(":7117") and ports["nodes"] == 7117,
    "the page's port": flags["http"].endswith(":%d" % ports["http"]),
    "the port of large payload, the next one": ports["large"] == ports["nodes"] + 1 != ports["http"],
    "a token from the secret": flags["http-token-file"].startswith(flags["keys"] + "/"),
    "the readiness probe": node["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"},
    "keys from a secret": any("secret" in v and m["mountPath"] == flags["keys"]
                              for v in pod["spec"]["volumes"] for m in node["volumeMounts"] if m["name"] == v["name"]),
    "a folder for what led to failures": any("emptyDir" in v and {"name": "STATE_DIRECTORY", "value": m["mountPath"]} in node["env"]
                                             for v in pod["spec"]["volumes"] for m in node["volumeMounts"] if m["name"] == v["name"]),
    "time to leave": pod["spec"]["terminationGracePeriodSeconds"] >= 30,
}.items() if not holds]
print("\n".join(wrong))
PYTHON
  ) || complain 'the manifest cannot be read'
  [ -z "$out" ] || complain "in the manifest these are not as they should be: $out"
  checked+=(Kubernetes)
fi

# The unit with its example's flags, and free ports of loopback in the place of theirs.
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
  example=$(sed -n 's/^# *TROUPE_NODE_FLAGS=//p' "$source/scripts/systemd/troupe-node.service")
  command=$(sed -n 's/^ExecStart=//p' "$source/scripts/systemd/troupe-node.service")
  for http in 7200 7118; do  # the port that large payload would have gives way
    first=$(ports 4)
    flags=$(sed "s/7117/$first/; s/--http [0-9]*/--http $([ $http = 7118 ] && echo $((first + 1)) || echo $((first + 3)))/" <<<"$example")
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
for flag in --listen --http --http-token-file --keys --patience; do
  grep -q -- "$flag" <<<"$help" || complain "the manifests use $flag, and 'troupe node' has no such flag"
done
bash -n "$source/scripts/slurm/troupe.sbatch" || complain 'troupe.sbatch is no script'
out=$("$source/scripts/slurm/troupe.sbatch" 2>&1) && complain 'troupe.sbatch takes no program for one'
grep -q 'name the program to run' <<<"$out" || complain "troupe.sbatch without a program: $out"
checked+=(Slurm)
echo "checked: ${checked[*]}"
[ "$failures" = 0 ] || exit 1
[ ${#missing[@]} = 0 ] || echo "skipped for want of ${missing[*]} (scripts/setup installs them)"
[ -z "$denied" ] || echo "skipped: $denied"
[ ${#missing[@]} = 0 ] && [ -z "$denied" ] || exit 77
