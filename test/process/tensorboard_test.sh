#!/usr/bin/env bash
# test/process/tensorboard_test.sh SOURCE BUILD: tests records with TensorBoard.
#
# TensorBoard's own reader finds the records of char_lm. A TensorBoard that serves lists and returns
# the histogram and the text of a file with one of each kind. Skipped where TensorBoard is not
# installed: scripts/setup --page has it.
set -uo pipefail
source=$1 build=$2
python=$source/.peers/tensorboard/bin/python
[ -x "$build/examples/char_lm" ] || { echo "this build has no examples"; exit 77; }
"$python" -c 'import tensorboard' 2>/dev/null || {
  echo "no TensorBoard here: scripts/setup --page installs it"
  exit 77
}

export PYTHONUTF8=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# want WHAT GOT: each a line.
want() {
  [ "$1" = "$2" ] && return
  printf 'TensorBoard reads\n%s\nnot\n%s\n' "$2" "$1"
  cat "$folder/err"
  failures=$((failures + 1))
}

"$build/examples/char_lm" --steps 6 --hidden 16 --validate-every 3 --validate-characters 256 \
  --no-save --sample-chars 20 --records "$folder/char_lm" >"$folder/out" ||
  { cat "$folder/out"; exit 1; }
want "$(printf '%s\n' scalar:loss=6 scalar:speed/characters_per_second=2 \
  scalar:validation/bits_per_character=3 text:sample=1)" \
  "$("$python" "$source/test/ops/read_events.py" "$folder/char_lm" 2>"$folder/err" |
    awk '{ print $1 ":" $2 }' | sort | uniq -c | awk '{ print $2 "=" $1 }')"

# The bytes that ops/records_test demands: [-1, 0, 0.5, 2] as a histogram.
mkdir "$folder/golden"
"$python" -c 'import sys; open(sys.argv[2], "wb").write(bytes.fromhex(open(sys.argv[1]).read()))' \
  "$source/test/ops/golden/events.golden" "$folder/golden/events.out.tfevents.1600000001.golden"
want "$(printf '%s\n' 'scalar loss 0 2.5 1600000002.0' 'scalar loss 300 0.125 1600000003.0' \
  'histogram weights/w 1 -1.0 2.0 4.0 1.5 30' "text sample 2 'In the beginning 🌍' text")" \
  "$("$python" "$source/test/ops/read_events.py" "$folder/golden" 2>"$folder/err")"
want "$(printf '%s\n' 'histogram weights/w 1 -1.0 2.0 4.0' "text sample 2 'In the beginning 🌍'")" \
  "$("$python" "$source/test/ops/served_events.py" "$folder/golden" \
    histogram:weights/w text:sample 2>"$folder/err")"
exit $((failures > 0))
