#!/usr/bin/env bash
# scripts/checks/fuzz.sh [SECONDS]: runs each libFuzzer target of test/fuzz/ for so long (default 60).
#
# Needs clang-16 and libclang-rt-16-dev, which it installs if it may; exit status 77 if they cannot be had. Prints executions
# and coverage of each; a crash fails, and so does a target that executed nothing. Inputs that it found go on from the
# golden files, in build/fuzz/.
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=${1:-60}
if ! command -v clang++-16 >/dev/null || ! compgen -G '/usr/lib/llvm-16/lib/clang/16/lib/linux/libclang_rt.fuzzer-*.a' >/dev/null; then
  { [ "$(id -u)" -eq 0 ] && apt-get install -y -qq --no-install-recommends clang-16 libclang-rt-16-dev >/dev/null 2>&1; } ||
    { echo "clang-16 and libclang-rt-16-dev are not installed" && exit 77; }
fi
work=build/fuzz
mkdir -p "$work/corpus"

# What a decoder stands on, compiled for the fuzzer in one go.
sources=(cluster/wire.cpp cluster/lane.cpp cluster/router.cpp cluster/router_bulk.cpp cluster/bulk_record.cpp cluster/seal.cpp
  cluster/transport.cpp
  devices/tensor.cpp devices/allocator.cpp devices/error.cpp devices/shape.cpp)
version=$(sed -n 's/^project(Troupe VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
for file in test/cluster/golden/*.golden; do
  bytes=$(tr -d ' \n' <"$file")
  # The target reads the header's size first.
  { printf '%b' "$(printf '\\x%02x\\x%02x' $((${#bytes} / 2 % 256)) $((${#bytes} / 512)))"; printf '%b' "$(sed 's/../\\x&/g' <<<"$bytes")"; } \
    >"$work/corpus/$(basename "$file" .golden)"
done

status=0
for file in test/fuzz/*.cpp; do
  name=$(basename "$file" .cpp)
  clang++-16 -std=c++20 -O1 -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -DMSGPACK_NO_BOOST -DTROUPE_VERSION="\"$version\"" \
    -I build/release/include "$file" "${sources[@]}" -lfmt -lcrypto -o "$work/$name" || { status=1; continue; }
  if ! "$work/$name" -max_total_time="$seconds" -print_final_stats=1 -max_len=4096 -artifact_prefix="$work/$name-" "$work/corpus" >"$work/$name.log" 2>&1; then
    echo "$file: a crash; the input is in $work, the report in $work/$name.log"
    status=1
  fi
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$name.log")
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$work/$name.log" | tail -1)
  echo "$name: ${executed:-0} executions, coverage ${coverage:-0}"
  [ "${executed:-0}" -gt 0 ] || { echo "$file: nothing was executed" && status=1; }
done
exit $status
