#!/usr/bin/env bash
# test/house/checks_test.sh SOURCE BUILD: can the checks fail? Each violation is planted in a copy of
# the tree and must be found, by file and line.
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fresh() {
  rm -rf "$work/tree"
  mkdir "$work/tree"
  (cd "$source" && tar -cf - --exclude=./build --exclude=./.git --exclude=./.peers --exclude=./.cache --exclude=__pycache__ .) | tar -xf - -C "$work/tree"
}

passes() { # check
  "$source/scripts/checks/$1.sh" "$work/tree" >"$work/out" 2>&1 || { echo "$1 fails on the tree as it is:" && cat "$work/out" && failures=$((failures + 1)); }
}

# planted CHECK FILE LINE PATTERN: the line, appended to the file, is reported by file and number.
planted() {
  local check=$1 file=$work/tree/$2 before
  before=$(cat "$file" 2>/dev/null || true)
  [ -e "$file" ] || { mkdir -p "$(dirname "$file")" && printf '// new\n' >"$file"; }
  printf '%s\n' "$3" >>"$file"
  if "$source/scripts/checks/$check.sh" "$work/tree" >"$work/out" 2>&1; then
    echo "$check did not notice '$3' in $2" && failures=$((failures + 1))
  elif ! grep -qE "^$2:$(wc -l <"$file"): .*$4" "$work/out"; then
    echo "$check did not name $2:$(wc -l <"$file") for '$3':" && cat "$work/out" && failures=$((failures + 1))
  fi
  if [ -n "$before" ]; then printf '%s\n' "$before" >"$file"; else rm "$file"; fi
}

fresh
passes includes
passes hygiene
planted includes devices/tensor/tensor.hpp '#include <troupe/ops/graph/graph.hpp>' 'devices/ must not include ops/'
planted includes devices/tensor/tensor.cpp '#include <troupe/functions.hpp>' 'devices/ must not include ops/'
planted includes ops/graph/graph.cpp '#include <troupe/actors/engine/engine.hpp>' 'ops/ must not include actors/'
planted includes ops/graph/graph.cpp '#include <troupe/autodiff/gradients.hpp>' 'ops/ must not include autodiff/'
planted includes controlflow/new.hpp '#include <troupe/actors/engine/engine.hpp>' 'controlflow/ must not include actors/'
planted includes autodiff/gradients.cpp '#include <troupe/actors/engine/engine.hpp>' 'autodiff/ must not include actors/'
planted includes actors/engine/engine.cpp '#include <troupe/autodiff/gradients.hpp>' 'actors/ must not include autodiff/'
planted includes actors/engine/engine.cpp '#include <troupe/cluster/node/node.hpp>' 'actors/ must not include cluster/'
planted includes cluster/new.cpp '#include <troupe/apps/troupe.hpp>' 'cluster/ must not include apps/'
planted includes ops/graph/graph.hpp '#include <troupe/test/main.hpp>' 'ops/ must not include test/'
planted includes ops/graph/graph.cpp '#include <caf/all.hpp>' 'CAF does not belong here'
planted includes autodiff/gradients.cpp '#  include <caf/all.hpp>' 'CAF does not belong here'
planted includes actors/engine/engine.cpp '#include <zmq.hpp>' 'ZeroMQ does not belong here'
planted includes actors/engine/engine.cpp '#include <msgpack.hpp>' 'msgpack does not belong here'
planted includes devices/tensor/tensor.cpp '#include <cuda_runtime.h>' 'CUDA does not belong here'
planted includes actors/plan/plan.cpp '#include <dnnl.hpp>' 'oneDNN does not belong here'
planted includes actors/plan/plan.cpp '#include <Eigen/Core>' 'Eigen does not belong here'
planted includes actors/plan/plan.cpp '#include "plan.hpp"' 'not a relative path'
planted includes apps/main.cpp '#include <troupe/apps/cluster.hpp>' 'include <troupe/cluster.hpp>'
planted includes apps/examples/01_hello_graph.cpp '#include <troupe/ops/graph/graph.hpp>' 'users include <troupe/troupe.hpp>'
planted hygiene ops/graph/graph.cpp $'\tint x;' 'a tab'
planted hygiene ops/graph/graph.cpp 'int x; ' 'a trailing blank'
planted hygiene ops/graph/graph.cpp $'int x;\r' 'a carriage return'
planted hygiene ops/graph/graph.cpp '__attribute__((no_sanitize("thread"))) int x;' 'told to look away'
planted hygiene scripts/tsan.supp 'race:caf::scheduler' 'a suppression'
planted hygiene cluster/new.hpp $'namespace troupe {\nstruct Differentiated {};' 'troupe::Differentiated is another type in'
planted readme README.md '[nothing](nowhere.md)' 'leads nowhere'
planted readme README.md '```sh
scripts/nothing' 'there is no command'
mkdir "$work/tree/utils"
out=$("$source/scripts/checks/includes.sh" "$work/tree" || true)
grep -q '^utils/:1: no such folder' <<<"$out" || { echo "includes did not notice a folder beside the architecture's" && failures=$((failures + 1)); }
# A node that tells Prometheus nonsense.
promtool=$("$source/scripts/checks/promtool.sh" "$2") || { echo "not tried: what metrics notices ($promtool)" && promtool=; }
mkdir "$work/fake" && ln -s "$2/promtool" "$work/fake/promtool"
cat >"$work/fake/troupe" <<'NODE'
#!/bin/sh
case $1 in node) echo http://127.0.0.1:1 && exec sleep 60 ;; *) echo "troupe_runs{ 1" ;; esac
NODE
mkdir -p "$work/fake/test/tools"
printf '#!/bin/sh\nprintf "http://127.0.0.1:1\\nhttp://127.0.0.1:1\\n"\nexec sleep 60\n' >"$work/fake/test/tools/busy_nodes"
chmod +x "$work/fake/troupe" "$work/fake/test/tools/busy_nodes"
if [ -n "$promtool" ] && "$source/scripts/checks/metrics.sh" "$work/fake" >/dev/null 2>&1; then
  echo "metrics did not notice nonsense" && failures=$((failures + 1))
fi
# planted_in_dashboard EDIT BUILD SENTENCE: one that is no JSON, that asks nonsense, and that asks for what no node tells, though longer names begin so.
planted_in_dashboard() {
  rm -rf "$work/scripts" && cp -r "$source/scripts" "$work/scripts"
  sed -i "$1" "$work/scripts/grafana/troupe.json"
  if "$work/scripts/checks/metrics.sh" "$2" >"$work/out" 2>&1; then
    echo "metrics did not notice '$1' in the dashboard" && failures=$((failures + 1))
  elif ! grep -qF "$3" "$work/out"; then
    echo "metrics did not say '$3' for '$1':" && cat "$work/out" && failures=$((failures + 1))
  fi
}
if [ -n "$promtool" ]; then
  planted_in_dashboard 's/"title": "Troupe",/"title": "Troupe"/' "$2" "Expecting ',' delimiter"
  planted_in_dashboard 's/rate(troupe_transport_sent_bytes_total\[1m\])/rate(troupe_transport_sent_bytes_total[1m]/' "$2" 'could not parse expression'
  planted_in_dashboard 's/job=\\"troupe\\"/job=\\"nodes\\"/' "$2" "the dashboard asks for the job 'nodes', which the configuration does not have"
  planted_in_dashboard 's/"troupe_runs_in_flight"/"troupe_runs"/' "$2" "the dashboard asks for 'troupe_runs', which no node tells"
fi
# A demo that says all that it should, and has no nodes.
mkdir -p "$work/idle/scripts"
cat >"$work/idle/scripts/demo" <<'DEMO'
#!/bin/sh
echo "three nodes, with keys: demo-1 at tcp://127.0.0.1:1, demo-2 at tcp://127.0.0.1:2, demo-3 at tcp://127.0.0.1:3"
for step in 1 2 3 4 5 6 7 8 9 10; do echo "step $step of 10  loss 1.0  "; done
DEMO
chmod +x "$work/idle/scripts/demo"
if "$source/scripts/checks/demo.sh" "$work/idle" >"$work/out" 2>&1; then
  echo "demo did not notice that there are no nodes" && failures=$((failures + 1))
elif ! grep -q '0 nodes with keys were seen' "$work/out"; then
  echo "demo did not say that there are no nodes:" && cat "$work/out" && failures=$((failures + 1))
fi
# And one whose nodes are there, and do nothing: what its page tells of them is what they say to each other.
mkdir -p "$work/idle/build/release"
cat >"$work/idle/build/release/troupe" <<'NODE'
#!/bin/sh
case $1 in node) sleep 3 && exit ;; esac
for name in demo-1 demo-2 demo-3; do echo "{\"name\": \"$name\", \"transport\": {\"received_bytes\": 892, \"sent_bytes\": 748}}"; done | paste -sd, | sed 's/.*/{"nodes": [&]}/'
NODE
chmod +x "$work/idle/build/release/troupe"
sed -i '2i for node in 1 2 3; do build/release/troupe node --name demo-$node --keys keys & done; echo to be seen at http://127.0.0.1:1' "$work/idle/scripts/demo"
echo wait >>"$work/idle/scripts/demo"
if "$source/scripts/checks/demo.sh" "$work/idle" >"$work/out" 2>&1; then
  echo "demo did not notice that its nodes do nothing" && failures=$((failures + 1))
elif ! grep -q '0 of its nodes had a share of the work' "$work/out"; then
  echo "demo did not say that its nodes do nothing:" && cat "$work/out" && failures=$((failures + 1))
fi
exit $((failures > 0))
