#!/usr/bin/env bash
# test/house/pods.sh SOURCE BUILD WORK: pods as the Kubernetes manifest has them; within a world of its own (scripts/machines.sh), where
# manifests_test.sh calls it.
#
# As many as it has, all at once, each with an address, a disk and copies of the secrets of its own, as the user that the manifest says. They
# have its arguments and its environment, and nothing that says where the others are: whom they join they find by the name that the headless
# service gives it, which a file of hosts resolves here.
set -euo pipefail
# shellcheck source=scripts/machines.sh
. "$1/scripts/machines.sh"
manifest=$1/scripts/kubernetes/troupe.yaml troupe=$2/troupe work=$3
volumes=$work/volumes token=$work/keys/http.token

fail() {
  echo "$1"
  for log in "$work"/pod*.log; do [ ! -e "$log" ] || { echo "--- $(basename "$log")" && cat "$log"; }; done
  exit 1
}

# pod NUMBER ADDRESS FOLDER: kubelet's part. Files: `names`, the pod's own and the one that the service gives it; `environment` and `arguments`,
# one a line. What is a volume there is a folder in `volumes` here.
pod() {
  python3 - "$manifest" "$volumes" "$@" <<'PYTHON'
import re, sys, yaml
manifest, volumes, number, address, folder = sys.argv[1:]
_, troupe = yaml.safe_load_all(open(manifest))
node = troupe["spec"]["template"]["spec"]["containers"][0]
name = "%s-%s" % (troupe["metadata"]["name"], number)
fields = {"status.podIP": address}

def here(text):
    for mount in node["volumeMounts"]:
        text = text.replace(mount["mountPath"], "%s/%s" % (volumes, mount["name"]))
    return text

environment = {"HOSTNAME": name, "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
for e in node["env"]:
    environment[e["name"]] = here(e["value"]) if "value" in e else fields[e["valueFrom"]["fieldRef"]["fieldPath"]]
arguments = [here(re.sub(r"\$\((\w+)\)", lambda variable: environment[variable[1]], a)) for a in node["args"]]
for file, lines in {"names": [name, "%s.%s" % (name, troupe["spec"]["serviceName"])], "environment": map("=".join, environment.items()), "arguments": arguments}.items():
    open("%s/%s" % (folder, file), "w").write("".join(line + "\n" for line in lines))
PYTHON
}
of_pods() { python3 -c 'import sys, yaml; print(list(yaml.safe_load_all(open(sys.argv[1])))[1]["spec"]'"$1)" "$manifest"; }

# The secret's files: root's, and readable for the pods' group. Who is not root here is all users at once.
"$troupe" keygen --keys "$work/keys" --name troupe >/dev/null 2>&1 || fail "no keys are made"
echo 0123456789abcdef0123456789abcdef >"$token"
as=()
if [ "$(awk '{ print $3 }' /proc/self/uid_map)" != 1 ]; then
  group=$(of_pods '["template"]["spec"]["securityContext"]["fsGroup"]')
  as=(setpriv --reuid "$(of_pods '["template"]["spec"]["securityContext"]["runAsUser"]')" --regid 0 --groups "$group" --inh-caps=-all --bounding-set=-all --no-new-privs)
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
  pod $i "$(address $i)" "$work/pod$i"
  { read -r "names[$i]" && read -r service; } <"$work/pod$i/names"
  echo "$(address $i) $service.default.svc.cluster.local $service" >>"$work/hosts"
done

# Whom the others join comes last: they have to wait for it.
pids=()
for ((i = count - 1; i >= 0; i--)); do
  add_machine $i "${names[i]}" "$(address $i)" "$work/hosts"
  add_disk $i "$volumes"
  copy_to $i "$work/keys" "$volumes"
  on $i mkdir -m 0777 "$volumes/state"
  mapfile -t environment <"$work/pod$i/environment"
  mapfile -t arguments <"$work/pod$i/arguments"
  exec_on $i env -i "PATH=$PATH" "${environment[@]}" "${as[@]}" "$troupe" "${arguments[@]}" >"$work/pod$i.log" 2>&1 &
  pids[i]=$!
done

seen_by() { "$troupe" ps --node "http://$(address "$1"):7200" --token-file "$token" 2>&1 | sed -nE 's/^([^ ]+) +alive .*/\1/p' | sort | paste -sd' '; }
sees_all() { [ "$(seen_by "$1")" = "${names[*]}" ]; }
has_ended() { ! kill -0 "$1" 2>/dev/null; }
sees_all_or_has_ended() { sees_all "$1" || has_ended "${pids[$1]}"; }
for ((i = 0; i < count; i++)); do
  within_bound sees_all_or_has_ended $i && sees_all $i || fail "${names[i]} sees '$(seen_by $i)', not '${names[*]}'"
  python3 -c 'import sys, urllib.request as u; u.build_opener(u.ProxyHandler({})).open(sys.argv[1]).read()' "http://$(address $i):7200/healthz" 2>"$work/probe" ||
    fail "${names[i]} is not ready: $(tail -n 1 "$work/probe")"
done
[ -z "$(ls -A "$volumes")" ] || fail "volumes of pods are not their own"

kill -TERM "${pids[@]}"
for ((i = 0; i < count; i++)); do wait "${pids[i]}" || fail "${names[i]} ends with $?"; done
