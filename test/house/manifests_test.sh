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
checked=()

if command -v systemd-analyze >/dev/null; then
  # The binary is not installed here: the one that was built stands in.
  sed "s|/usr/bin/troupe|$troupe|" "$source/scripts/systemd/troupe-node.service" >"$work/troupe-node.service"
  out=$(systemd-analyze verify "$work/troupe-node.service" 2>&1) && [ -z "$out" ] || complain "systemd-analyze verify: $out"
  sed 's|^Type=notify|Type=notifies|' "$work/troupe-node.service" >"$work/broken.service"
  out=$(systemd-analyze verify "$work/broken.service" 2>&1)
  grep -q notifies <<<"$out" || complain "systemd-analyze verify does not see a planted mistake: $out"
  checked+=(systemd)
fi

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
    "the readiness probe": node["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"},
    "keys from a secret": any("secret" in v and m["mountPath"] == flags["keys"]
                              for v in pod["spec"]["volumes"] for m in node["volumeMounts"] if m["name"] == v["name"]),
    "time to leave": pod["spec"]["terminationGracePeriodSeconds"] >= 30,
}.items() if not holds]
print("\n".join(wrong))
PYTHON
  ) || complain 'the manifest cannot be read'
  [ -z "$out" ] || complain "in the manifest these are not as they should be: $out"
  checked+=(Kubernetes)
fi

help=$("$troupe" node --help)
for flag in --listen --http --patience; do
  grep -q -- "$flag" <<<"$help" || complain "the manifests use $flag, and 'troupe node' has no such flag"
done
bash -n "$source/scripts/slurm/troupe.sbatch" || complain 'troupe.sbatch is no script'
out=$("$source/scripts/slurm/troupe.sbatch" 2>&1) && complain 'troupe.sbatch takes no program for one'
grep -q 'name the program to run' <<<"$out" || complain "troupe.sbatch without a program: $out"
checked+=(Slurm)
echo "checked: ${checked[*]}"
exit $((failures > 0))
