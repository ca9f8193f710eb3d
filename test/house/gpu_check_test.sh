#!/usr/bin/env bash
# test/house/gpu_check_test.sh SOURCE BUILD: does scripts/gpu-check pass over the fake runtime, does
# it notice a step that fails, and does its archive run elsewhere?
set -euo pipefail
source=$1 build=$2
[ -e "$build/test/libtroupe_cuda_fake.so" ] || { echo "there is no nvcc" && exit 77; }
[ "$build" -ef "$source/build/release" ] || { echo "it runs on the release build" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "gpu-check: $1"
  cat "$work/out" "$work/results/log" 2>/dev/null
  exit 1
}
# No peer: it would measure a CPU against a fake.
export TROUPE_PEERS=/nonexistent

"$source/scripts/gpu-check" --fake --quick --out "$work/results" >"$work/out" 2>&1 ||
  fail "a step failed"
for step in machine ceilings floors tests determinism start matmul chain train while swap; do
  grep -q "\"step\": \"$step\", \"state\": \"passed\"" "$work/results/results.jsonl" ||
    fail "step $step did not pass"
done
for figure in gpu_copy_gbps gpu_launch_done gpu_matmul_bf16_16 gpu_chain_8 gpu_resnet_4_f32_step \
  gpu_while_data_8_ops gpu_swap_2x gpu_equal_bits_lstm_8 gpu_start_cold; do
  grep -q "\"name\": \"$figure\", \"value\": [0-9]" "$work/results/results.jsonl" ||
    fail "there is no figure $figure"
  grep -q "^$figure " "$work/results/table" || fail "the table has no $figure"
done

# A device without memory: steps fail, those behind them run.
status=0
TROUPE_FAKE_CUDA_MEMORY=4096 "$source/scripts/gpu-check" --fake --quick --out "$work/results" \
  --only determinism,floors,start >"$work/out" 2>&1 || status=$?
[ "$status" -eq 1 ] || fail "it ends with $status where steps fail"
grep -q '"step": "start", "state": "failed"' "$work/results/results.jsonl" ||
  fail "it stops at a step that fails"

# The archive: what it holds starts in another folder.
if [ -e "$build/libtroupe_cuda.so" ] && [ -e "$build/test/test_ops" ] &&
  [ -e "$build/test/test_controlflow" ] && [ -e "$build/test/test_autodiff" ]; then
  "$source/scripts/gpu-check" --pack "$work/check.tar.gz" >"$work/out" 2>&1 || fail "no archive"
  mkdir "$work/there" && tar -xzf "$work/check.tar.gz" -C "$work/there"
  [ "$(stat -c %s "$work/check.tar.gz")" -lt $((60 << 20)) ] || fail "the archive is too large"
  status=0
  (cd "$work/there" && scripts/gpu-check --out there --only floors) >"$work/out" 2>&1 || status=$?
  [ "$status" -eq 0 ] || fail "what is packed does not start"
  grep -q 'there is no gpu:0 here' "$work/there/there/log" ||
    [ -e /proc/driver/nvidia/version ] || fail "a machine without a GPU is not noticed"
fi
