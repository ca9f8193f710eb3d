#!/usr/bin/env bash
# test/house/pods.sh SOURCE BUILD WORK: pods as the Kubernetes manifests have them; within a world
# of its own (scripts/machines.sh), where manifests_test.sh calls it.
#
# The nodes start all at once, each with an address, a disk and copies of the secrets of its own, as
# the manifest's user, with its arguments and its environment. They find each other by the names
# that the headless service gives them, which a file of hosts resolves here. The Job trains on them,
# with a smaller model, and a second pod of it goes on from its volume.
set -euo pipefail
# shellcheck source=scripts/machines.sh
. "$1/scripts/machines.sh"
manifest=$1/scripts/kubernetes/troupe.yaml job=$1/scripts/kubernetes/training.yaml
source=$1 build=$2 troupe=$2/troupe work=$3
volumes=$work/volumes token=$work/keys/http.token

fail() {
  echo "$1"
  for log in "$work"/pod*.log; do
    [ ! -e "$log" ] || { echo "--- $(basename "$log")" && cat "$log"; }
  done
  exit 1
}

# pod MANIFEST KIND NUMBER ADDRESS FOLDER: kubelet's part. Files: `names`, the pod's own and the one
# that the service gives it; `environment`, one a line; `arguments`, each with a null character. A
# volume there is a folder in `volumes` here.
pod() {
  python3 - "$volumes" "$@" <<'PYTHON'
import re, sys, yaml
volumes, manifest, kind, number, address, folder = sys.argv[1:]
(troupe,) = [d for d in yaml.safe_load_all(open(manifest)) if d["kind"] == kind]
node = troupe["spec"]["template"]["spec"]["containers"][0]
name = "%s-%s" % (troupe["metadata"]["name"], number)
service = troupe["spec"].get("serviceName", "no-service")
fields = {"status.podIP": address}

def here(text):
    for mount in node["volumeMounts"]:
        text = text.replace(mount["mountPath"], "%s/%s" % (volumes, mount["name"]))
    return text

environment = {"HOSTNAME": name, "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
for e in node.get("env", []):
    if "value" in e:
        environment[e["name"]] = here(e["value"])
    else:
        environment[e["name"]] = fields[e["valueFrom"]["fieldRef"]["fieldPath"]]
arguments = [here(re.sub(r"\$\((\w+)\)", lambda variable: environment[variable[1]], a))
             for a in node["command"] + node["args"]]
for file, lines, end in (("names", [name, "%s.%s" % (name, service)], "\n"),
                         ("environment", map("=".join, environment.items()), "\n"),
                         ("arguments", arguments, "\0")):
    open("%s/%s" % (folder, file), "w").write("".join(line + end for line in lines))
PYTHON
}
of_pods() {
  python3 -c 'import sys, yaml
documents = yaml.safe_load_all(open(sys.argv[1]))
print([d for d in documents if d["kind"] == "StatefulSet"][0]["spec"]'"$1)" "$manifest"
}

# The secret's files: root's, and readable for the pods' group. A user other than root here is all
# users at once.
"$troupe" keygen --keys "$work/keys" --name troupe >/dev/null 2>&1 || fail "no keys are made"
echo 0123456789abcdef0123456789abcdef >"$token"
as=()
if [ "$(awk '{ print $3 }' /proc/self/uid_map)" != 1 ]; then
  group=$(of_pods '["template"]["spec"]["securityContext"]["fsGroup"]')
  as=(setpriv --reuid "$(of_pods '["template"]["spec"]["securityContext"]["runAsUser"]')" --regid 0
    --groups "$group" --inh-caps=-all --bounding-set=-all --no-new-privs)
  chgrp -R "$group" "$work/keys"
  chmod 0440 "$work/keys"/*
  chmod 0755 "$work" "$work/keys"
fi

count=$(of_pods '["replicas"]')
address() { echo "10.244.17.$(($1 + 1))"; }
make_lan kubelet 10.244.17.254
mkdir "$volumes"
echo '127.0.0.1 localhost' >"$work/hosts"
names=()
for ((i = 0; i < count; i++)); do
  mkdir "$work/pod$i"
  pod "$manifest" StatefulSet $i "$(address $i)" "$work/pod$i"
  { read -r "names[$i]" && read -r service; } <"$work/pod$i/names"
  echo "$(address $i) $service.default.svc.cluster.local $service" >>"$work/hosts"
done

# The pod that the others join comes last: they have to wait for it.
pids=()
for ((i = count - 1; i >= 0; i--)); do
  add_machine $i "${names[i]}" "$(address $i)" "$work/hosts"
  add_disk $i "$volumes"
  copy_to $i "$work/keys" "$volumes"
  on $i mkdir -m 0777 "$volumes/state"
  mapfile -t environment <"$work/pod$i/environment"
  mapfile -td '' arguments <"$work/pod$i/arguments"
  exec_on $i env -i "PATH=$PATH" "${environment[@]}" "${as[@]}" \
    "$troupe" "${arguments[@]:1}" >"$work/pod$i.log" 2>&1 &
  pids[i]=$!
done

seen_by() {
  "$troupe" ps --node "http://$(address "$1"):7200" --token-file "$token" 2>&1 |
    sed -nE 's/^([^ ]+) +alive .*/\1/p' | sort | paste -sd' '
}
sees_all() { [ "$(seen_by "$1")" = "${names[*]}" ]; }
has_ended() { ! kill -0 "$1" 2>/dev/null; }
sees_all_or_has_ended() { sees_all "$1" || has_ended "${pids[$1]}"; }
for ((i = 0; i < count; i++)); do
  within_bound sees_all_or_has_ended $i && sees_all $i ||
    fail "${names[i]} sees '$(seen_by $i)', not '${names[*]}'"
  python3 -c 'import sys, urllib.request as u
u.build_opener(u.ProxyHandler({})).open(sys.argv[1]).read()' \
    "http://$(address $i):7200/healthz" 2>"$work/probe" ||
    fail "${names[i]} is not ready: $(tail -n 1 "$work/probe")"
done
[ -z "$(ls -A "$volumes")" ] || fail "volumes of pods are not their own"

# The Job: a machine, whose disk both of its pods have in turn. The text, too, is a small one.
head -c 40000 "$source/test/bench/RESULTS.md" >"$work/text"
chmod 0644 "$work/text"
add_machine $count training "$(address $count)" "$work/hosts"
add_disk $count "$volumes"
copy_to $count "$work/keys" "$volumes"
on $count mkdir -m 0777 "$volumes/saved"
trains() { # attempt, steps
  mkdir "$work/job$1"
  pod "$job" Job "$1" "$(address $count)" "$work/job$1"
  mapfile -t environment <"$work/job$1/environment"
  mapfile -td '' arguments <"$work/job$1/arguments"
  arguments=("${arguments[@]/#--steps=*/--steps=$2}")
  [ "$1" -gt 0 ] || arguments+=(--hidden=16)  # which is in the file that the second goes on from
  on $count env -i "PATH=$build/examples:$PATH" "${environment[@]}" "${as[@]}" "${arguments[@]}" \
    --text="$work/text" --sample-chars=0 >"$work/pod-job$1.log" 2>&1 ||
    fail "the Job's pod ends with $?"
  grep -qE "^step +$2 of $2 " "$work/pod-job$1.log" ||
    fail "the Job's pod does not train for $2 steps"
}
trains 0 3
trains 1 6
grep -q 'continues after step 3' "$work/pod-job1.log" ||
  fail "the Job's second pod does not go on from its volume"

kill -TERM "${pids[@]}"
for ((i = 0; i < count; i++)); do wait "${pids[i]}" || fail "${names[i]} ends with $?"; done
