#!/usr/bin/env bash
# scripts/checks/metrics.sh BUILD: does promtool accept what nodes tell Prometheus? One that is idle, and two that work on a run together;
# is the Grafana dashboard JSON, does promtool accept what it asks Prometheus, and do nodes tell all that it asks for, by that very name, and
# under the job that the configuration beside it gives them, which promtool accepts too?
#
# Exit status 77 where promtool cannot be had (promtool.sh).
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit 0 ;; esac
build=$(cd "${1:?a build folder}" && pwd)
promtool=$("$(dirname "$0")/promtool.sh" "$build") || { echo "$promtool" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# What the dashboard asks, as rules that record it: JSON is YAML. Grafana's own variables stand for a time where one may stand, and for any
# text elsewhere. And the names of metrics in it: what is left without texts, labels and functions.
dashboard=$(dirname "$0")/../grafana/troupe.json
python3 -m json.tool "$dashboard" >/dev/null
python3 - "$dashboard" "$work/rules" "$work/names" <<'PYTHON'
import json, re, sys

def asked(part):
    for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        if key == 'expr':
            yield re.sub(r'\$\{?\w+(?::\w+)?\}?', 'any', re.sub(r'\$\{?__(?:rate_interval|interval|range)\}?', '1m', value))
        else:
            yield from asked(value)

def names(expression):
    selected = [name for _, of in re.findall(r'__name__\s*(=~?)\s*"([^"]*)"', expression) for name in of.split('|')]
    left = re.sub(r'"(?:\\.|[^"\\])*"', '', expression)
    left = re.sub(r'\{[^}]*\}|\[[^]]*\]|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)', ' ', left)
    words = {'and', 'or', 'unless', 'bool', 'offset', 'by', 'without', 'on', 'ignoring', 'group_left', 'group_right'}
    return selected + [w for w in re.findall(r'(?<![\w:.])[a-zA-Z_:][\w:]*(?![\w:]|\s*\()', left) if w not in words]

with open(sys.argv[1]) as file:
    expressions = list(asked(json.load(file)))
with open(sys.argv[2], 'w') as file:
    json.dump({'groups': [{'name': 'dashboard', 'rules': [{'record': f'dashboard:{i}', 'expr': e} for i, e in enumerate(expressions)]}]}, file)
with open(sys.argv[3], 'w') as file:
    file.writelines(f'{name}\n' for name in sorted({name for e in expressions for name in names(e)}))
PYTHON
[ -s "$work/names" ] || { echo "the dashboard asks for nothing" && exit 1; }
"$promtool" check rules "$work/rules" >"$work/said" 2>&1 || { cat "$work/said" && exit 1; }
configuration=$(dirname "$0")/../grafana/prometheus.yml
"$promtool" check config "$configuration" >"$work/said" 2>&1 || { cat "$work/said" && exit 1; }
while read -r job; do
  grep -qE "^ *- job_name: $job\$" "$configuration" || { echo "the dashboard asks for the job '$job', which the configuration does not have" && exit 1; }
done < <(grep -oE 'job=\\"[^"\\]*' "$dashboard" | sed 's/.*"//' | sort -u)
"$build/troupe" node --listen tcp://127.0.0.1:0 --name 'm' --workers 1 --http 0 >"$work/out" &
node=$!
coproc BUSY { exec "$build/test/tools/busy_nodes"; }
other=$BUSY_PID
trap 'kill $node $other 2>/dev/null || true; wait $node $other 2>/dev/null || true; rm -rf "$work"' EXIT
until grep -q http "$work/out"; do
  kill -0 "$node" 2>/dev/null || { echo "the node has ended" && exit 1; }
  sleep 0.1
done
read -r a <&"${BUSY[0]}"
read -r b <&"${BUSY[0]}"
for url in "$(grep -o 'http://[^ ]*' "$work/out")" "$a" "$b"; do
  "$build/troupe" metrics --patience 60 --node "$url" >"$work/metrics"
  "$promtool" check metrics <"$work/metrics"
  [ "$url" != "$a" ] || cp "$work/metrics" "$work/busy"
done
# The plans that a made, their runs, and the other node are there.
for sample in 'troupe_runs_in_flight 1' 'troupe_runs_started_total{plan="a/1"} 2' 'troupe_runs_started_total{plan="a/2"} 1' \
  'troupe_runs_ended_total{plan="a/1",outcome="ok"} 2' 'troupe_peer_sent_bytes_total{peer="b"} ' 'troupe_transport_turned_away_total 0'; do
  grep -qF "$sample" "$work/busy" || { echo "a node with plans and a run does not tell '$sample'" && exit 1; }
done
# Whatever the dashboard draws.
while read -r name; do
  grep -qE "^$name(\{| )" "$work/busy" || { echo "the dashboard asks for '$name', which no node tells" && exit 1; }
done <"$work/names"
