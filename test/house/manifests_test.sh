#!/usr/bin/env bash
# test/house/manifests_test.sh SOURCE BUILD: the systemd unit, the Kubernetes manifest and the Slurm script say what exists.
set -uo pipefail
source=$1 troupe=$2/troupe
failures=0
complain() {
  echo "$1"
  failures=$((failures + 1))
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checked=() missing=()

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

# What they start does start: with their arguments, keys as kubelet puts them there, and free ports of loopback in the place of theirs.
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
    TROUPE_NODE_FLAGS=$flags bash -c "exec ${command/\/usr\/bin\/troupe/$troupe}" >"$work/unit.log" 2>&1 &
    started "the unit with '$flags'" "$work/unit.log" $! && kill -TERM $!
    wait $! || complain "the unit's node ends with $?: $(cat "$work/unit.log")"
  done
  checked+=('the unit started')

  if python3 -c 'import yaml' 2>/dev/null; then
    "$troupe" keygen --keys "$work/keys" --name troupe >/dev/null 2>&1
    echo 0123456789abcdef0123456789abcdef >"$work/keys/http.token"
    as=()
    if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then  # the pod's user and group, root's files
      chgrp -R 65534 "$work/keys"
      chmod 0440 "$work/keys"/*
      chmod 0755 "$work" "$work/keys"
      as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    fi
    first=$(ports 8)
    pods=()
    for pod in 0 1; do
      mapfile -t args < <(python3 - "$source/scripts/kubernetes/troupe.yaml" "$work/keys" "$((first + 4 * pod))" <<'PYTHON'
import sys, yaml
_, troupe = yaml.safe_load_all(open(sys.argv[1]))
node = troupe["spec"]["template"]["spec"]["containers"][0]
port = int(sys.argv[3])
for a in node["args"]:
    print(a.replace("$(POD_IP)", "127.0.0.1").replace(":7117", ":%d" % port).replace(":7200", ":%d" % (port + 3)).replace("/etc/troupe/keys", sys.argv[2]))
PYTHON
      )
      # The service's names are Kubernetes' to resolve; an address stands in.
      join=()
      [ $pod = 1 ] && join=("TROUPE_JOIN=127.0.0.1:$first")
      env TROUPE_SERVICE=troupe KUBERNETES_SERVICE_HOST=10.0.0.1 HOSTNAME=troupe-$pod "${join[@]}" "${as[@]}" "$troupe" "${args[@]}" >"$work/pod$pod.log" 2>&1 &
      pods+=($!)
      started "the manifest's pod $pod (${args[*]})" "$work/pod$pod.log" $! || break
      python3 -c "
import urllib.request
url = 'http://127.0.0.1:$((first + 4 * pod + 3))'
urllib.request.urlopen(url + '/healthz').read()
request = urllib.request.Request(url + '/members', headers={'Authorization': 'Bearer 0123456789abcdef0123456789abcdef'})
assert b'troupe-$pod' in urllib.request.urlopen(request).read()
" 2>"$work/probe.log" || complain "the manifest's pod $pod does not answer: $(cat "$work/probe.log")"
    done
    for pid in "${pods[@]}"; do kill -TERM "$pid" 2>/dev/null; done
    for pid in "${pods[@]}"; do wait "$pid" || complain "a pod ends with $?: $(cat "$work"/pod*.log)"; done
    checked+=('two pods started')
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
[ ${#missing[@]} = 0 ] || { echo "skipped for want of ${missing[*]} (scripts/setup installs them)"; exit 77; }
