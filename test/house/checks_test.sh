#!/usr/bin/env bash
# test/house/checks_test.sh SOURCE BUILD: can the checks of texts fail? Violations are planted in a
# copy of the tree, all of one check at once, and each must be found, by file and line.
# shellcheck source-path=SCRIPTDIR source=planted.sh
. "$(dirname "$0")/planted.sh"

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
plant scripts/test 'seq 9 |'' head -3' 'the end of a pipe stops reading early'
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
people='is a word for people only' opens='a sentence opens with' literal_opens='opens with'
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
# Texts of the product, and names of test cases.
plant actors/plan/plan.cpp 'const char* x = "nobody has answered";' \
  "\`nobody\` $people, in a string literal"
plant cluster/node/node.cpp 'const char* x = "what answers is no node";' \
  "a string literal has a sentence that $literal_opens \`what\`"
plant cluster/inspect/page/main.js "const x = 'No plan. Of those, none runs.';" \
  "a string literal has a sentence that $literal_opens \`Of\`"
plant test/ops/state_test.cpp 'BOOST_AUTO_TEST_CASE(what_is_refused) {}' \
  "the name of a test case opens with \`what\`"
plant test/ops/state_test.cpp "BOOST_AUTO_TEST_CASE(a${long//é/b}) {}" \
  "a test case's name has 102 characters of 60"
finds hygiene

# A small tree, for the numbers. Neither code, nor a link counts, nor a row of one of the long
# tables. A string counts as a text, not as a comment.
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
  grep -qE "^devices +$1\$" "$tree/$counts" && grep -qE '^ops +0 +0 +0 +1 +0$' "$tree/$counts" ||
    fail "hygiene --update did not write $1:" "$tree/$counts"
}
has_numbers '0 +1 +0 +0 +0'
passes hygiene "a tree with its numbers"
# Fewer than are permitted ask for a lower number, which --update writes; it writes no higher one.
sed -i 's/^devices .*/devices 0 9 0 0 0/' "$tree/$counts"
! check hygiene || fail "hygiene did not ask for a lower number"
asks="^$counts:1: devices has 1 uses of .*, fewer than 9; run scripts/checks/hygiene.sh --update"
grep -q "$asks" "$work/out" || fail "hygiene did not ask for --update, but:" "$work/out"
check hygiene --update || fail "hygiene --update fails:" "$work/out"
has_numbers '0 +1 +0 +0 +0'
sed -i 's/^devices .*/devices 0 0 0 0 0/' "$tree/$counts"
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
plant test/controlflow/loops_test.cpp 'int x = 0;  // W2, W999: a row' 'no CASES.md has a row W999;'
plant test/actors/new_test.cpp '// Q1' 'no CASES.md has a row Q1;'
plant actors/new/README.md $'## Map\n| `no_such_file` | idea |' 'the map names no_such_file,'
plant test/faults/CASES.md '| U99 | a row | none | none |' 'no test names row U99'
plant test/faults/CASES.md '| W4 | of another page, too | none | none |' 'no test names row W4'
finds readme

passes budgets "the tree as it is"
sed -i '/^tsan process /d; s/^asan ops .*/asan ops none/' "$tree/test/budgets.txt"
plant test/budgets.txt 'asan page 5' 'asan runs no suites of test/page/'
planted+=('test/budgets.txt:1: there is no row tsan process;'
  'test/budgets.txt:[0-9]+: the budget is no number')
finds budgets

# Seconds of suites, as ctest reports them: those of a folder are added up.
echo 'release ops 10' >"$tree/test/budgets.txt"
times() { # NAME SECONDS...
  printf '<testcase name="%s" classname="" time="%s" status="run">\n' "$@" >"$work/times"
  check budgets --times release "$work/times"
}
times ops/a 4 ops/b 5.5 || fail "budgets refuses suites within the budget:" "$work/out"
! grep OVER "$work/out" || fail "budgets calls suites within the budget OVER"
times ops/a 54 ops/b 45.5 || fail "budgets refuses what a crowded machine explains:" "$work/out"
grep -q '^ *99.5  ops (10) OVER$' "$work/out" || fail "budgets does not print OVER:" "$work/out"
! TROUPE_BUDGETS=1 times ops/a 14 || fail "TROUPE_BUDGETS=1 has no effect"
! times ops/a 54 ops/b 47 || fail "budgets takes more than ten times the budget"
grep -q '^release ops took 101 s, more than 10 times its budget of 10 s;' "$work/out" ||
  fail "budgets names no folder:" "$work/out"
! times ops/a 1 cluster/a 1 || fail "budgets takes a folder without a budget"
grep -q '^release cluster has no budget;' "$work/out" || fail "budgets names no row:" "$work/out"
restore
exit $((failures > 0))
