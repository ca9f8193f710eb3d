#!/usr/bin/env bash
# test/house/names_test.sh SOURCE BUILD: a program may give its types and variables common names.
# E6
#
# After each public header and `using namespace troupe`, it declares and uses them. A name of the
# library that users do not need lives in `troupe::detail`.
set -uo pipefail
source=$1 build=$2
failures=0
complain() {
  echo "$1"
  failures=$((failures + 1))
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")

types=(
  Action Agent Algebra Allocator Attribute Batch Block Branch Bucket Buffer Builder Built Cache
  Callback FrameLink Case Cell Channel Chunk Client Clock Column Command Comparison Completion
  Condition Config Connection Context Counter Cursor Decision Device Dial Disk Dispatcher
  EarlyLimits Edge Effect Entry Evaluator Event Factory Fault Field Filter Frame Gate Group Handle
  Handler Host Index Inference Input Interval Item Job Keep Kernel Key Lane Layer Line Link List
  Listener Location Loop Manager Map Matrix Member Membership Message Model Namespace Network Node
  Observer OpenLoop Output Packet Page Partition Peer Plan Point Policy Pool Popped Position
  Process Profile Program Range Rate Reader Record Recorder Reduction Ref Registry Request
  Response Result Rewriter Router Row Run RunPart Sample Scan Scatter Scheduler Scope Segment
  Sequence Server Session Sink Site Slot Socket Sort Source State Step Storage Stream StringRef
  Structure Swapper Symbol System Table Target Targets Task Thread Time Timer Token Trace Trainer
  Tree Truth Type User Value Vector Diagnosis View Visitor Wait Window Windows Worker World Writer
)
variables=(
  add added appended append arity built conflicts covered counted describe equal fits flattened
  holds key name negation position positions prune reduce settled shifted simplify spread state
  value wide wire within
)

# names_of HEADER NAME...: those that the header does not export on purpose.
names_of() {
  local header=$1
  shift
  printf '%s\n' "$@" |
    grep -vxF -f <(sed -n 's/^using detail::\([A-Za-z0-9_]*\);$/\1/p' "$source/apps/$header")
}
# program HEADER TYPES VARIABLES: it declares and uses them.
program() {
  local name
  printf '#include <troupe/%s>\n\nusing namespace troupe;\n\n' "$1"
  for name in $2; do
    printf 'struct %s {};\ninline %s use(const %s& x) { return x; }\n' "$name" "$name" "$name"
  done
  for name in $3; do
    printf 'inline int %s = 1;\ninline int use_%s() { return %s; }\n' "$name" "$name" "$name"
  done
}
compiles() {
  LC_ALL=C "$compiler" -std=c++20 -fsyntax-only -I"$build/include" "$1" >"$work/errors" 2>&1
}

for header in troupe.hpp cluster.hpp op.hpp; do
  program "$header" "$(names_of "$header" "${types[@]}")" \
    "$(names_of "$header" "${variables[@]}")" >"$work/program.cpp"
  compiles "$work/program.cpp" && continue
  ambiguous="s/.*reference to '\([A-Za-z_]*\)' is ambiguous.*/\1/p"
  names=$(sed -n "$ambiguous" "$work/errors" | sort -u | tr '\n' ' ')
  [ -n "$names" ] || names="none, but: $(grep -m 3 'error:' "$work/errors")"
  complain "<troupe/$header> declares common names; move them to troupe::detail: $names"
done

# A name that is public must be found, or the test sees nothing.
program troupe.hpp Graph '' >"$work/program.cpp"
compiles "$work/program.cpp" && complain "a type 'Graph' beside the library's is not ambiguous"
echo "checked: ${#types[@]} types and ${#variables[@]} variables"
[ "$failures" = 0 ]
