#!/usr/bin/env bash
# test/house/check_programs_test.sh SOURCE BUILD: does scripts/check count its parts, and do the
# checks that run programs notice a node that tells nonsense and a demo that does nothing?
# shellcheck source-path=SCRIPTDIR source=planted.sh
. "$(dirname "$0")/planted.sh"

# scripts/check runs the parts that are named, counts them and keeps their times.
echo '#include <caf/all.hpp>' >>"$tree/ops/graph/graph.cpp"
status=0
"$tree/scripts/check" pages includes >"$work/out" 2>&1 || status=$?
[ "$status" -eq 1 ] || fail "check ends with $status where a part fails"
grep -qx 'check: 1 passed, 1 failed, 0 skipped' "$work/out" ||
  fail "check did not count:" "$work/out"
grep -qx '1 1 0' "$tree/build/check-summary" || fail "check left no summary"
"$tree/scripts/check" --list >"$work/out"
for part in pages includes; do
  grep -qE "^$part +[a-z,]+ +[0-9]+ s, 20[0-9-]+ " "$work/out" ||
    fail "check kept no time of $part:" "$work/out"
done
grep -qE '^fresh +fresh +- ' "$work/out" || fail "check does not list what has not run:" "$work/out"
status=0
"$tree/scripts/check" pages nothing >"$work/out" 2>&1 || status=$?
[ "$status" -eq 2 ] && grep -q "there is no part 'nothing'" "$work/out" ||
  fail "check ends with $status for a part that is not there:" "$work/out"
restore

# A part that does not end is stopped, with all that it has begun.
printf '#!/bin/sh\nsleep 1000.36 & echo waits; sleep 1000.36\n' >"$tree/scripts/checks/model.sh"
status=0
TROUPE_PART_SECONDS=1 "$tree/scripts/check" model includes >"$work/out" 2>&1 || status=$?
[ "$status" -eq 1 ] && grep -qx 'waits' "$work/out" &&
  grep -qE '^the part model was stopped after [0-9]+ s; split it' "$work/out" &&
  grep -qx 'check: 1 passed, 1 failed, 0 skipped' "$work/out" ||
  fail "check ends with $status for a part that takes too long:" "$work/out"
! grep -lsxz 'sleep.1000.36.' /proc/[0-9]*/cmdline >"$work/out" || fail "a stopped part goes on"
restore

# A node that tells Prometheus nonsense.
promtool=$("$checks/promtool.sh" "$2") ||
  { echo "not tried: what metrics notices ($promtool)" && promtool=; }
mkdir "$work/fake" && ln -s "$2/promtool" "$work/fake/promtool"
cat >"$work/fake/troupe" <<'NODE'
#!/bin/sh
case $1 in node) echo http://127.0.0.1:1 && exec sleep 60 ;; *) echo "troupe_runs{ 1" ;; esac
NODE
mkdir -p "$work/fake/test/tools"
cat >"$work/fake/test/tools/busy_nodes" <<'NODES'
#!/bin/sh
echo http://127.0.0.1:1
echo http://127.0.0.1:1
exec sleep 60
NODES
chmod +x "$work/fake/troupe" "$work/fake/test/tools/busy_nodes"
if [ -n "$promtool" ] && "$checks/metrics.sh" "$work/fake" >/dev/null 2>&1; then
  echo "metrics did not notice nonsense" && failures=$((failures + 1))
fi
# planted_in FILE EDIT BUILD SENTENCE: a dashboard that is no JSON, that asks nonsense, and that
# asks for a name that no node exports, though longer names begin so; alerts likewise.
planted_in() {
  rm -rf "$work/scripts" && mkdir "$work/scripts"
  cp -r "$source/scripts/checks" "$source/scripts/grafana" "$work/scripts"
  sed -i "$2" "$work/scripts/grafana/$1"
  if "$work/scripts/checks/metrics.sh" "$3" >"$work/out" 2>&1; then
    echo "metrics did not notice '$2' in $1" && failures=$((failures + 1))
  elif ! grep -qF "$4" "$work/out"; then
    echo "metrics did not say '$4' for '$2':" && cat "$work/out" && failures=$((failures + 1))
  fi
}
if [ -n "$promtool" ]; then
  planted_in troupe.json 's/"title": "Troupe",/"title": "Troupe"/' "$2" "Expecting ',' delimiter"
  planted_in troupe.json 's/rate(\(troupe_transport_sent_bytes_total\)\[1m\])/rate(\1[1m]/' "$2" \
    'could not parse expression'
  planted_in troupe.json 's/job=\\"troupe\\"/job=\\"nodes\\"/' "$2" \
    "the dashboard asks for the job 'nodes', which the configuration does not have"
  planted_in troupe.json 's/"troupe_runs_in_flight"/"troupe_runs"/' "$2" \
    "the dashboard asks for 'troupe_runs', which no node tells"
  planted_in troupe-alerts.yml 's/> 3 \* histogram/> 3 ** histogram/' "$2" \
    'could not parse expression'
  planted_in troupe-alerts.yml 's/for: 30s/for: 30h/' "$2" 'alertname: TroupeNodeSuspected'
  planted_in troupe-alerts.yml 's/alert: TroupeMemoryLow/alert: TroupeMemoryHigh/' "$2" \
    'TroupeMemoryLow'
  planted_in troupe-alerts.yml '$a\      - {alert: New, expr: "troupe_waits > 9"}' "$2" \
    'no test raises the alert New'
fi
# A demo that says all that it should, and has no nodes.
mkdir -p "$work/idle/scripts"
cat >"$work/idle/scripts/demo" <<'DEMO'
#!/bin/sh
for n in 1 2 3; do echo "demo-$n at tcp://127.0.0.1:$n"; done | paste -sd, |
  sed 's/,/, /g; s/^/three nodes, with keys: /'
for step in 1 2 3 4 5 6 7 8 9 10; do echo "step $step of 10  loss 1.0  "; done
DEMO
chmod +x "$work/idle/scripts/demo"
if "$checks/demo.sh" "$work/idle" >"$work/out" 2>&1; then
  echo "demo did not notice that there are no nodes" && failures=$((failures + 1))
elif ! grep -q '0 nodes with keys were seen' "$work/out"; then
  echo "demo did not say that there are no nodes:" && cat "$work/out" && failures=$((failures + 1))
fi
# And one whose nodes are there, and do nothing: its page shows only what keeps them together. They
# end once all three run and the page has been read twice, so that the check has counted them.
mkdir -p "$work/idle/build/release"
cat >"$work/idle/build/release/troupe" <<'NODE'
#!/bin/sh
lines() { cat "$0.$1" 2>/dev/null | wc -l; }
case $1 in
  node)
    echo >>"$0.nodes"
    until [ "$(lines nodes)" -eq 3 ]; do sleep 0.1; done
    enough=$(($(lines reads) + 2))
    until [ "$(lines reads)" -ge "$enough" ]; do sleep 0.1; done
    exit
    ;;
esac
bytes='{"received_bytes": 892, "sent_bytes": 748}'
for name in demo-1 demo-2 demo-3; do echo "{\"name\": \"$name\", \"transport\": $bytes}"; done |
  paste -sd, | sed 's/.*/{"nodes": [&]}/'
echo >>"$0.reads"
NODE
chmod +x "$work/idle/build/release/troupe"
sed -i -e '2i for n in 1 2 3; do build/release/troupe node --name demo-$n --keys keys & done' \
  -e '2i echo to be seen at http://127.0.0.1:1' "$work/idle/scripts/demo"
echo wait >>"$work/idle/scripts/demo"
if "$checks/demo.sh" "$work/idle" >"$work/out" 2>&1; then
  echo "demo did not notice that its nodes do nothing" && failures=$((failures + 1))
elif ! grep -q '0 of its nodes had a share of the work' "$work/out"; then
  fail "demo did not say that its nodes do nothing:" "$work/out"
fi
exit $((failures > 0))
