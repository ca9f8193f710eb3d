#!/usr/bin/env bash
# scripts/checks/metrics.sh BUILD: do nodes, dashboard and alerts agree about metrics?
#
# promtool must accept the metrics of an idle node and of two that work on a run together, the
# queries of the Grafana dashboard, the rules for alerts, which have a test each, and the
# configuration beside them. Nodes must export each metric that dashboard and alerts ask for, by
# that very name; both ask for a job of the configuration.
#
# Exit status 77 if there is no promtool (promtool.sh) or no python3-yaml.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit 0 ;; esac
build=$(cd "${1:?a build folder}" && pwd)
promtool=$("$(dirname "$0")/promtool.sh" "$build") || { echo "$promtool" && exit 77; }
python3 -c 'import yaml' 2>/dev/null ||
  { echo "python3-yaml is not installed; scripts/setup installs it" && exit 77; }
grafana=$(cd "$(dirname "$0")/../grafana" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
accepts() { # command of promtool...
  "$promtool" "$@" >"$work/said" 2>&1 || { cat "$work/said" && exit 1; }
}

# `rules`: the dashboard's queries as rules that record them. Grafana's own variables stand for a
# time if one may stand there, and for any text elsewhere. `names` and `jobs`: each metric and
# job that is asked for, and where; a name is left of an expression without texts, labels and
# functions. `untested`: alerts that no test raises.
python3 -m json.tool "$grafana/troupe.json" >/dev/null
python3 - "$grafana" "$work" <<'PYTHON'
import json, re, sys, yaml

def asked(part):
    pairs = ()
    if isinstance(part, dict):
        pairs = part.items()
    elif isinstance(part, list):
        pairs = enumerate(part)
    for key, value in pairs:
        if key == 'expr':
            value = re.sub(r'\$\{?__(?:rate_interval|interval|range)\}?', '1m', value)
            yield re.sub(r'\$\{?\w+(?::\w+)?\}?', 'any', value)
        else:
            yield from asked(value)

keywords = 'by|without|on|ignoring|group_left|group_right'
words = {'and', 'or', 'unless', 'bool', 'offset', *keywords.split('|')}

def names(expression):
    selected = [name for _, of in re.findall(r'__name__\s*(=~?)\s*"([^"]*)"', expression)
                for name in of.split('|')]
    left = re.sub(r'"(?:\\.|[^"\\])*"', '', expression)
    left = re.sub(r'\{[^}]*\}|\[[^]]*\]|\b(?:%s)\s*\([^)]*\)|\boffset\s+\w+' % keywords, ' ', left)
    return selected + [w for w in re.findall(r'(?<![\w:.])[a-zA-Z_:][\w:]*(?![\w:]|\s*\()', left)
                       if w not in words]

grafana, work = sys.argv[1:]
with open(grafana + '/troupe.json') as file:
    dashboard = list(asked(json.load(file)))
with open(grafana + '/troupe-alerts.yml') as file:
    alerts = yaml.safe_load(file)
with open(work + '/rules', 'w') as file:
    json.dump({'groups': [{'name': 'dashboard', 'rules': [
        {'record': f'dashboard:{i}', 'expr': e} for i, e in enumerate(dashboard)]}]}, file)
expressions = [('dashboard', e) for e in dashboard] + [('file of alerts', e) for e in asked(alerts)]
with open(work + '/names', 'w') as file:
    file.writelines(sorted({f'{name} {where}\n' for where, e in expressions for name in names(e)
                            if name != 'up'}))  # Prometheus' own
with open(work + '/jobs', 'w') as file:
    file.writelines(sorted({f'{job} {where}\n' for where, e in expressions
                            for job in re.findall(r'job="([^"]*)"', e)}))
with open(grafana + '/troupe-alerts.test.yml') as file:
    raised = {t['alertname'] for suite in yaml.safe_load(file)['tests']
              for t in suite['alert_rule_test'] if t.get('exp_alerts')}
with open(work + '/untested', 'w') as file:
    file.writelines(f"{rule['alert']}\n" for group in alerts['groups'] for rule in group['rules']
                    if rule['alert'] not in raised)
PYTHON
for asking in dashboard 'file of alerts'; do
  grep -q " $asking\$" "$work/names" || { echo "the $asking has no query" && exit 1; }
done
accepts check rules "$work/rules"
accepts check rules "$grafana/troupe-alerts.yml"
accepts test rules "$grafana/troupe-alerts.test.yml"
[ ! -s "$work/untested" ] || { sed 's/^/no test raises the alert /' "$work/untested" && exit 1; }
accepts check config "$grafana/prometheus.yml"
while read -r job asking; do
  grep -qE "^ *- job_name: $job\$" "$grafana/prometheus.yml" ||
    { echo "the $asking asks for the job '$job', which the configuration does not have" && exit 1; }
done <"$work/jobs"
"$build/troupe" node --listen tcp://127.0.0.1:0 --name 'm' --workers 1 --http 0 >"$work/out" &
node=$!
coproc BUSY { exec "$build/test/tools/busy_nodes"; }
other=$BUSY_PID
trap 'kill $node $other 2>/dev/null || true
  wait $node $other 2>/dev/null || true; rm -rf "$work"' EXIT
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
for sample in 'troupe_runs_in_flight 1' 'troupe_runs_started_total{plan="a/1"} 2' \
  'troupe_runs_started_total{plan="a/2"} 1' \
  'troupe_runs_ended_total{plan="a/1",outcome="ok"} 2' \
  'troupe_run_duration_seconds_bucket{plan="a/1",le="+Inf"} 2' \
  'troupe_run_duration_seconds_count{plan="a/1"} 2' \
  'troupe_run_duration_seconds_count{plan="a/2"} 0' \
  'troupe_run_endings_total{reason="ok"} 2' \
  'troupe_run_endings_total{reason="deadline_exceeded"} 0' \
  'troupe_peer_sent_bytes_total{peer="b"} ' 'troupe_transport_turned_away_total 0'; do
  grep -qF "$sample" "$work/busy" ||
    { echo "a node with plans and a run does not tell '$sample'" && exit 1; }
done
while read -r name asking; do
  grep -qE "^$name(\{| )" "$work/busy" ||
    { echo "the $asking asks for '$name', which no node tells" && exit 1; }
done <"$work/names"
