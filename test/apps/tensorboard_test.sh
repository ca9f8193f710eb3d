#!/usr/bin/env bash
# test/apps/tensorboard_test.sh SOURCE BUILD: TensorBoard's own reader finds what char_lm recorded. Skipped where TensorBoard
# is not installed: scripts/setup --peers has it.
set -uo pipefail
source=$1 build=$2
python=$source/.peers/bin/python
[ -x "$build/examples/char_lm" ] || { echo "this build has no examples"; exit 77; }
"$python" -c 'import tensorboard' 2>/dev/null || { echo "no TensorBoard here: scripts/setup --peers installs it"; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$build/examples/char_lm" --steps 6 --hidden 16 --validate-every 3 --validate-characters 256 --no-save --sample-chars 20 --records "$folder" >"$folder/out" || { cat "$folder/out"; exit 1; }
read -r -d '' -a found < <("$python" "$source/test/ops/read_events.py" "$folder" 2>"$folder/err" | awk '{ print $1 ":" $2 }' | sort | uniq -c | awk '{ print $2 "=" $1 }' && printf '\0')
want='scalar:loss=6 scalar:speed/characters_per_second=2 scalar:validation/bits_per_character=3 text:sample=1'
[ "${found[*]}" = "$want" ] && exit 0
printf 'TensorBoard reads\n  %s\nnot\n  %s\n' "${found[*]}" "$want"
cat "$folder/err"
exit 1
