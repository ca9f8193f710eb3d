#!/usr/bin/env bash
# test/house/checks_test.sh SOURCE BUILD: can the checks fail? Violations are planted in a copy of
# the tree, all of one check at once, and each must be found, by file and line.
set -euo pipefail
source=$1 checks=$1/scripts/checks
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() { # sentence [file]
  echo "$1" && failures=$((failures + 1))
  [ -z "${2:-}" ] || cat "$2"
}

# The tracked files, or all that is not built if the source is no repository.
files_of_source() {
  if [ -e .git ]; then
    git ls-files -z | while IFS= read -r -d '' f; do [ ! -e "$f" ] || printf '%s\0' "$f"; done
  else
    local pruned=(-path ./build -o -path ./.peers -o -path ./.cache -o -name __pycache__)
    find . \( "${pruned[@]}" \) -prune -o -type f -print0
  fi
}
tree=$work/tree
mkdir "$tree"
(cd "$source" && files_of_source | tar -cf - --null -T -) | tar -xf - -C "$tree"
# A repository, by which hygiene tells new lines from old ones.
repository() { git -C "$tree" -c user.name=test -c user.email=test@localhost "$@"; }
restore() { repository reset -q --hard && repository clean -qfdx; }
repository init -q 2>/dev/null
repository add -A -f
repository commit -q -m "the tree as it is"

check() { "$checks/$1.sh" "${@:2}" "$tree" >"$work/out" 2>&1; }
passes() { check "$1" || fail "$1 fails on $2:" "$work/out"; }

# plant FILE TEXT PATTERN: appends the text to the file, whose last line is to be reported so.
planted=()
plant() {
  local file=$tree/$1
  [ -e "$file" ] || { mkdir -p "$(dirname "$file")" && printf '// new\n' >"$file"; }
  printf '%s\n' "$2" >>"$file"
  planted+=("$1:$(wc -l <"$file"): .*$3")
}

# finds CHECK: it fails, and reports all that was planted, which is then removed.
finds() {
  local pattern missed=''
  ! check "$1" || missed="a failure"
  for pattern in "${planted[@]}"; do
    grep -qE "^$pattern" "$work/out" || missed+="${missed:+, }'$pattern'"
  done
  [ -z "$missed" ] || fail "$1 did not report $missed, but:" "$work/out"
  planted=()
  restore
}

# An include against an arrow between top-level folders, or between sub-folders.
plant_upwards() { # file, header
  plant "$1" "#include <troupe/$2>" "${1%%/*}/ must not include ${2%%/*}/"
}
plant_sideways() { # file, header
  plant "$1" "#include <troupe/$2>" "${1%/*}/ must not include ${2%/*}/"
}
passes includes "the tree as it is"
plant_upwards devices/tensor/tensor.hpp ops/graph/graph.hpp
plant_upwards ops/graph/graph.cpp actors/engine/engine.hpp
plant_upwards ops/graph/graph.cpp autodiff/gradients.hpp
plant_upwards controlflow/new.hpp actors/engine/engine.hpp
plant_upwards autodiff/gradients.cpp actors/engine/engine.hpp
plant_upwards actors/engine/engine.cpp autodiff/gradients.hpp
plant_upwards actors/engine/engine.cpp cluster/node/node.hpp
plant_upwards cluster/node/new.cpp apps/troupe.hpp
plant_upwards ops/graph/graph.hpp test/main.hpp
plant devices/tensor/tensor.cpp '#include <troupe/functions.hpp>' 'devices/ must not include ops/'
# The order of sub-folders: downwards only, and none that the order does not list.
plant_sideways devices/base/error.hpp devices/tensor/tensor.hpp
plant_sideways devices/threads/new.hpp devices/tensor/tensor.hpp
plant_sideways devices/cpu/products/new.hpp devices/cpu/elements/reduce.hpp
plant_sideways ops/format/new.cpp ops/graph/graph.hpp
plant_sideways actors/observe/new.hpp actors/plan/plan.hpp
plant_sideways actors/placement/new.hpp actors/engine/engine.hpp
plant_sideways cluster/transport/sim/new.hpp cluster/transport/zeromq/zeromq.hpp
plant_sideways cluster/runs/new.hpp cluster/node/node.hpp
plant_sideways controlflow/lower.cpp controlflow/library/new.hpp
plant ops/graph/new.hpp '#include <troupe/functions.hpp>' 'ops/graph/ must not include ops/library/'
unlisted='has no place in the order of sub-folders; add it to scripts/checks/includes.sh'
plant cluster/elsewhere/new.hpp '' ''
planted[-1]="cluster/elsewhere/new.hpp:1: cluster/elsewhere/ $unlisted"
plant cluster/protocol/new.hpp '#include <troupe/cluster/elsewhere/new.hpp>' "new.hpp> $unlisted"
plant autodiff/tape/new.hpp '' ''
planted[-1]="autodiff/tape/new.hpp:1: autodiff/tape/ $unlisted"
# Libraries.
plant ops/graph/graph.cpp '#include <caf/all.hpp>' 'CAF does not belong here'
plant autodiff/gradients.cpp '#  include <caf/all.hpp>' 'CAF does not belong here'
plant actors/engine/engine.cpp '#include <zmq.hpp>' 'ZeroMQ does not belong here'
plant actors/engine/engine.cpp '#include <msgpack.hpp>' 'msgpack does not belong here'
plant devices/tensor/tensor.cpp '#include <cuda_runtime.h>' 'CUDA does not belong here'
plant actors/plan/plan.cpp '#include <dnnl.hpp>' 'oneDNN does not belong here'
plant actors/plan/plan.cpp '#include <Eigen/Core>' 'Eigen does not belong here'
plant actors/plan/plan.cpp '#include "plan.hpp"' 'not a relative path'
plant apps/main.cpp '#include <troupe/apps/cluster.hpp>' 'include <troupe/cluster.hpp>'
plant apps/examples/01_hello_graph.cpp '#include <troupe/ops/graph/graph.hpp>' \
  'users include <troupe/troupe.hpp>'
mkdir "$tree/utils"
planted+=("utils/:1: no such folder")
finds includes

passes hygiene "the tree as it is"
plant ops/graph/graph.cpp $'\tint x;' 'a tab'
plant ops/graph/graph.cpp 'int x; ' 'a trailing blank'
plant ops/graph/graph.cpp $'int x;\r' 'a carriage return'
plant ops/graph/graph.cpp '__attribute__((no_sanitize("thread"))) int x;' 'told to look away'
plant scripts/tsan.supp 'race:caf::scheduler' 'a suppression'
plant cluster/node/new.hpp $'namespace troupe {\nstruct Differentiated {};' \
  'troupe::Differentiated is another type in'
planted+=('devices/base/new.hpp:1: no newline at the end')
printf '// new' >"$tree/devices/base/new.hpp"
# Lines over 100 characters, not bytes.
long=$(printf 'é%.0s' {1..101})
plant devices/base/error.hpp "// $long" 'the line has 104 characters of 100'
plant scripts/build "# $long" 'the line has 103 characters of 100'
plant ops/README.md "$long" 'the line has 101 characters of 100'
plant ops/README.md "| $long |" 'the line has 105 characters of 100'
counts=scripts/checks/prose.counts
planted+=("$counts:1: ops has [0-9]* lines over 100 characters, more than [0-9]*;")
# Words for people only, and openings of sentences.
people='is a word for people only' opens='a sentence opens with'
plant actors/plan/plan.hpp '// The partition that knows who waits.' "\`who\` $people"
plant actors/plan/plan.cpp 'int x = 0;  // nobody reads it' "\`nobody\` $people"
plant cluster/README.md 'The router tells somebody.' "\`somebody\` $people"
plant autodiff/sweep.cpp 'int x = 0;  // of the sweep' "$opens \`of\`"
plant apps/README.md '- The same holds there.' "$opens \`The same\`"
plant scripts/build $'\n# Where it is built.' "$opens \`Where\`"
plant controlflow/lower.cpp $'\n// What is lowered.' "$opens \`What\`"
plant controlflow/lower.cpp $'\n/* The frame opens. Those\n   that wait go on. */' ''
lines=$(wc -l <"$tree/controlflow/lower.cpp")
planted[-1]="controlflow/lower.cpp:$((lines - 1)): $opens \`Those\`"
finds hygiene

# A small tree, for the numbers. Neither code, nor text in a string, nor a link counts, nor a row of
# one of the long tables.
tree=$work/small
mkdir -p "$tree"/{devices,ops,controlflow,autodiff,actors,cluster,scripts/checks}
echo '// Nobody reads it.' >"$tree/devices/one.hpp"
{
  echo 'const char* that = "What is it? Who knows // nobody";'
  echo "// https://example.com/$(printf 'x%.0s' {1..100})"
} >"$tree/ops/one.cpp"
printf '```\nwho\n```\n`nobody`\n' >"$tree/ops/README.md"
printf '| %s |\n' "$long" >"$tree/ops/CASES.md"
! check hygiene || fail "hygiene did not miss its numbers"
check hygiene --update || fail "hygiene --update fails:" "$work/out"
has_numbers() { # devices' numbers
  grep -qE "^devices +$1\$" "$tree/$counts" && grep -qE '^ops +0 +0 +0$' "$tree/$counts" ||
    fail "hygiene --update did not write $1:" "$tree/$counts"
}
has_numbers '0 +1 +0'
passes hygiene "a tree with its numbers"
# Fewer than are permitted ask for a lower number, which --update writes; it writes no higher one.
sed -i 's/^devices .*/devices 0 9 0/' "$tree/$counts"
! check hygiene || fail "hygiene did not ask for a lower number"
asks="^$counts:1: devices has 1 uses of .*, fewer than 9; run scripts/checks/hygiene.sh --update"
grep -q "$asks" "$work/out" || fail "hygiene did not ask for --update, but:" "$work/out"
check hygiene --update || fail "hygiene --update fails:" "$work/out"
has_numbers '0 +1 +0'
sed -i 's/^devices .*/devices 0 0 0/' "$tree/$counts"
! check hygiene --update || fail "hygiene --update raised a number"
grep -q '^devices/one.hpp:1: `Nobody` is a word for people only' "$work/out" ||
  fail "hygiene did not name the line that is too many, but:" "$work/out"
tree=$work/tree

# scripts/check judges the whole tree; here it is three files.
if command -v clang-format-14 >/dev/null; then
  mkdir "$work/formatted" && cp "$source/.clang-format" "$work/formatted"
  printf 'int  x;\n' >"$work/formatted/one.hpp"
  printf 'int x;\nint f( int y) { return y; }\n' >"$work/formatted/two.cpp"
  printf 'int x;\n' >"$work/formatted/three.cpp"
  ! "$checks/format.sh" "$work/formatted" >"$work/out" 2>&1 || fail "format did not fail"
  printf '%s: clang-format 14 writes this differently\n' one.hpp:1 two.cpp:2 |
    diff - "$work/out" || fail "format did not report these two lines alone"
fi

plant README.md '[nothing](nowhere.md)' 'leads nowhere'
plant README.md $'```sh\nscripts/nothing' 'there is no command'
finds readme

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
# planted_in_dashboard EDIT BUILD SENTENCE: a dashboard that is no JSON, that asks nonsense, and
# that asks for a name that no node exports, though longer names begin so.
planted_in_dashboard() {
  rm -rf "$work/scripts" && mkdir "$work/scripts"
  cp -r "$source/scripts/checks" "$source/scripts/grafana" "$work/scripts"
  sed -i "$1" "$work/scripts/grafana/troupe.json"
  if "$work/scripts/checks/metrics.sh" "$2" >"$work/out" 2>&1; then
    echo "metrics did not notice '$1' in the dashboard" && failures=$((failures + 1))
  elif ! grep -qF "$3" "$work/out"; then
    echo "metrics did not say '$3' for '$1':" && cat "$work/out" && failures=$((failures + 1))
  fi
}
if [ -n "$promtool" ]; then
  planted_in_dashboard 's/"title": "Troupe",/"title": "Troupe"/' "$2" "Expecting ',' delimiter"
  planted_in_dashboard 's/rate(\(troupe_transport_sent_bytes_total\)\[1m\])/rate(\1[1m]/' "$2" \
    'could not parse expression'
  planted_in_dashboard 's/job=\\"troupe\\"/job=\\"nodes\\"/' "$2" \
    "the dashboard asks for the job 'nodes', which the configuration does not have"
  planted_in_dashboard 's/"troupe_runs_in_flight"/"troupe_runs"/' "$2" \
    "the dashboard asks for 'troupe_runs', which no node tells"
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
