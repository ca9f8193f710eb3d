#!/usr/bin/env bash
# scripts/checks/model.sh [--long] [TREE]: do the protocols hold in every interleaving?
#
# Generates, compiles and runs spin's verifier for each configuration of the models in test/model/.
# It prints a line each: states, depth of the search, seconds, verdict. The table below has the
# expected verdicts: a faultless configuration must pass, a planted fault must be caught, and for
# the given reason; a claim that a limit never binds must be refuted.
#
#   --long   larger configurations too: 30 minutes, 6 GiB
set -euo pipefail
case "${1:-}" in
  -h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit 0 ;;
  --long) long=yes && shift ;;
  *) long= ;;
esac
cd "${1:-$(dirname "$0")/../..}/test/model"
models=$PWD
command -v spin >/dev/null ||
  { echo "spin is not installed; scripts/setup installs it" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -n "$long" ] && at_once=1 || at_once=$(nproc) # the larger ones fill the memory alone
started=0

# Prints the verifier's result: holds, assertion, deadlock, cycle, or trouble, such as a search that
# was cut short.
verdict() {
  if ! grep -q 'errors: ' out ||
    grep -qE 'max search depth too small|out of memory|error: ' out; then
    echo trouble
  elif grep -q 'errors: 0$' out; then
    echo holds
  elif grep -q 'assertion violated' out; then
    echo assertion
  elif grep -q 'invalid end state' out; then
    echo deadlock
  elif grep -q 'acceptance cycle' out; then
    echo cycle
  else
    echo trouble
  fi
}

# run EXPECTED MODEL [-D...]...: -DLIVENESS checks the model's ltl formula under weak fairness.
# -DCOMPACT keeps a hash of a state instead of the state, so that it fits. -DT_REVERSE tries the
# steps in the other order, if that finds a fault sooner. The run goes on in the background.
run() {
  started=$((started + 1))
  [ "$(jobs -rp | wc -l)" -lt "$at_once" ] || wait -n || true
  mkdir "$work/$started"
  verify "$work/$started" "$@" >"$work/$started.out" 2>&1 &
}

# verify FOLDER EXPECTED MODEL [-D...]...: leaves a file `as_expected` there if it was.
verify() {
  local folder=$1 expected=$2 model=$3 got label options=() compile=(-O2 -DSAFETY) search=() \
    start=$EPOCHREALTIME
  shift 3
  # a fault that is soon found is not worth optimising for
  [ "$expected" = holds ] || compile=(-O0 -DSAFETY)
  for option in "$@"; do
    case $option in
      -DLIVENESS) compile=(-O2 -DNFAIR=4) search=(-a -f) options+=("$option") ;;
      -DCOMPACT) compile+=(-DHC4) ;;
      -DT_REVERSE) compile+=("$option") ;;
      *) options+=("$option") ;;
    esac
  done
  cd "$folder"
  cp "$models/$model.pml" .
  if spin -a "${options[@]}" "$model.pml" >out 2>&1 &&
    gcc -w "${compile[@]}" -DVECTORSZ=4096 -o pan pan.c >>out 2>&1; then
    nice ./pan -m200000 "${search[@]}" >out 2>&1 || true
  fi
  got=$(verdict)
  label="$model ${*//-D/}"
  printf '%-46s %10s states %6s deep %6.1f s  ' "$label" \
    "$(awk '/states, stored/ { print $1; exit }' out)" \
    "$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' out | tail -1)" \
    "$(awk "BEGIN { print $EPOCHREALTIME - $start }")"
  if [ "$got" = "$expected" ]; then
    [ "$expected" = holds ] && echo holds || echo "caught: $got"
    touch as_expected
  else
    echo "FAILED: expected '$expected', got '$got'"
    [ "$got" = trouble ] && tail -5 out
  fi
  rm -f pan pan.*
}

frame=(-DK=1 -DN=3)
run holds frame "${frame[@]}"
run holds frame -DK=2 -DN=3
run holds frame -DK=1 -DN=2 -DONE_WAY
run holds frame -DK=1 -DN=2 -DPOISON
run holds frame -DK=1 -DN=2 -DLIVENESS
run holds frame -DK=2 -DN=4 -DLAST=2 -DEVERY_GRANT=2
run deadlock frame -DK=1 -DN=4 -DLAST=3 -DEVERY_GRANT=3
run holds frame -DK=1 -DN=2 -DREPEAT
run assertion frame -DK=1 -DN=2 -DREPEAT -DNEVER_REPEATED
run assertion frame -DK=1 -DN=2 -DREPEAT -DFAULT_NO_CAME
run holds frame "${frame[@]}" -DEARLY=1
run holds frame "${frame[@]}" -DEARLY=1 -DREPEAT
run holds frame "${frame[@]}" -DEARLY=1 -DLAST=2 -DONE_WAY
run holds frame -DK=1 -DN=4 -DLAST=3 -DEARLY=1 -DEVERY_GRANT=2
run assertion frame "${frame[@]}" -DEARLY=1 -DNEVER_AHEAD
run deadlock frame "${frame[@]}" -DEARLY=1 -DFAULT_DROPS_EARLY
run assertion frame -DK=1 -DN=4 -DEARLY=1 -DONE_WAY -DFAULT_GRANT_AHEAD
bytes=(-DK=2 -DN=4 -DLAST=2 -DBYTES -DEVERY_GRANT=2)
run holds frame "${bytes[@]}"
run assertion frame "${bytes[@]}" -DNEVER_REFUSED
run deadlock frame "${bytes[@]}" -DFAULT_REFUSES_OLDEST
run deadlock frame "${bytes[@]}" -DFAULT_UNWATCHED
run assertion frame "${frame[@]}" -DNEVER_WINDOW
run assertion frame "${frame[@]}" -DNEVER_UNGRANTED
run assertion frame "${frame[@]}" -DNEVER_EARLY
run assertion frame "${frame[@]}" -DNEVER_LATE_GRANT
run assertion frame "${frame[@]}" -DNEVER_OVERTAKEN_GRANT
run assertion frame "${frame[@]}" -DFAULT_EARLY_RECYCLE
run assertion frame "${frame[@]}" -DFAULT_NO_ENTERS
run assertion frame "${frame[@]}" -DFAULT_DEAD_EXITS
run assertion frame "${frame[@]}" -DFAULT_NO_WINDOW
run assertion frame "${frame[@]}" -DFAULT_NO_GRANT
run assertion frame "${frame[@]}" -DFAULT_GRANT_AHEAD
run assertion frame "${frame[@]}" -DFAULT_LATE_GRANT
run deadlock frame "${frame[@]}" -DFAULT_LAST_GRANT
run deadlock frame "${frame[@]}" -DFAULT_NO_HOLD
run deadlock frame "${frame[@]}" -DONE_WAY -DFAULT_UNSENT
run deadlock frame "${frame[@]}" -DFAULT_DEAD_CONSTANT
run assertion frame "${frame[@]}" -DFAULT_DEAD_CONTROL
run deadlock frame "${frame[@]}" -DFAULT_DEAD_POISON

nested=(-DNO=2 -DNI=2)
run holds nested -DNO=2 -DNI=1
run assertion nested "${nested[@]}" -DNEVER_OUTER_WINDOW
run assertion nested "${nested[@]}" -DNEVER_INNER_WINDOW
run assertion nested "${nested[@]}" -DNEVER_NO_PREFIX
run assertion nested "${nested[@]}" -DNEVER_LATE_GRANT
run assertion nested "${nested[@]}" -DNEVER_EARLY_INSTANCE
run assertion nested -DNO=2 -DNI=1 -DFAULT_NO_PREFIX -DT_REVERSE
run assertion nested "${nested[@]}" -DFAULT_NO_CHILD_COUNT
run deadlock nested "${nested[@]}" -DFAULT_NO_OUTER_HOLD

run holds call
run holds call -DPOISON
run holds call -DSAME_HOME -DPOISON
run holds call -DW=2 -DINNER=1 -DPOISON
run assertion call -DNEVER_KEPT
run assertion call -DNEVER_EARLY
run assertion call -DFAULT_ENDED_TOO_EARLY
run assertion call -DFAULT_OVER_NOT_AWAITED
run deadlock call -DSAME_HOME -DFAULT_PLACES_FOR_ALL

run holds wakeup -DOUTSIDE=1
run holds wakeup -DOUTSIDE=1 -DSTOP
run holds wakeup -DWAITS
run holds wakeup -DOUTSIDE=1 -DLIVENESS
run holds wakeup -DWAITS -DLIVENESS
run assertion wakeup -DNEVER_PARKED
run assertion wakeup -DFAULT_NO_SECOND_LOOK
run assertion wakeup -DFAULT_NO_LAST_LOOK
run assertion wakeup -DFAULT_WAKE_FIRST
run assertion wakeup -DWAITS -DFAULT_NO_WATCHER
run holds wakeup -DCALLS=1 -DOUTSIDE=0 -DCHILDREN=1
run assertion wakeup -DCALLS=1 -DOUTSIDE=0 -DCHILDREN=2 -DFAULT_FORGETS_RING
run assertion wakeup -DCALLS=1 -DOUTSIDE=1 -DCHILDREN=0 -DFAULT_NO_LOOK_AFTER
watch=(-DANY_WAITS -DCALLS=1 -DOUTSIDE=0 -DCHILDREN=1)
run holds wakeup "${watch[@]}"
run assertion wakeup "${watch[@]}" -DFAULT_COUNTS_FIRST
run assertion wakeup "${watch[@]}" -DFAULT_NO_WATCH_AFTER
run assertion wakeup "${watch[@]}" -DFAULT_NO_WATCH_LEFT

if [ -n "$long" ]; then
  run holds frame -DK=1 -DN=3 -DPOISON
  run holds frame "${frame[@]}" -DONE_WAY
  run holds frame -DK=1 -DN=2 -DGENS=3 -DONE_WAY
  run holds frame -DK=1 -DN=3 -DGENS=1 -DLIVENESS
  run holds frame -DK=2 -DN=4 -DCOMPACT
  run holds frame "${frame[@]}" -DEARLY=1 -DPOISON
  run holds frame "${frame[@]}" -DEARLY=1 -DONE_WAY -DREPEAT -DCOMPACT
  run holds nested -DNO=2 -DNI=1 -DLIVENESS
  run holds nested -DNO=2 -DNI=2 -DCOMPACT
  run assertion nested -DNO=2 -DNI=2 -DFAULT_GRANT_BY_SLOT
  run holds wakeup
  run holds wakeup -DSTOP
  run holds wakeup -DCALLS=1 -DOUTSIDE=1 -DCHILDREN=0
  run holds wakeup -DCALLS=2 -DOUTSIDE=0 -DCHILDREN=1
  run holds wakeup -DCALLS=1 -DOUTSIDE=0 -DCHILDREN=1 -DSTOP
  run holds wakeup -DCALLS=1 -DOUTSIDE=0 -DCHILDREN=1 -DLIVENESS
  run holds wakeup "${watch[@]}" -DLIVENESS
  run holds wakeup -DANY_WAITS -DCALLS=1 -DOUTSIDE=1 -DCHILDREN=1 -DCOMPACT
  run holds wakeup "${watch[@]}" -DCALLERS=2 -DCOMPACT
  run holds wakeup -DW=3 -DOUTSIDE=1 -DCHILDREN=1 -DCOMPACT
fi

wait
failures=0
for ((i = 1; i <= started; i++)); do
  cat "$work/$i.out"
  [ -e "$work/$i/as_expected" ] || failures=$((failures + 1))
done
[ "$failures" -eq 0 ]
