#!/usr/bin/env bash
# scripts/checks/fuzz.sh [SECONDS] [TARGET...]: runs each libFuzzer target of test/fuzz/, or those
# named, for so long (default 60).
#
# Needs clang-16 and libclang-rt-16-dev, which it installs, and a release build. It fails if the
# compiler cannot be installed, because it fuzzed nothing; with TROUPE_NO_SETUP set, as in .ci/run
# and `scripts/check --ci`, the exit status is 77, as without a release build. A target names the
# files that are compiled for the fuzzer (`// Instruments:`); all else is libtroupe's. Prints
# executions and coverage of each; a crash fails, and so does a target that executed nothing. Inputs
# continue from build/fuzz/NAME/; the first are the target's own seeds and, for frames, the golden
# files.
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=${1:-60}
shift || true
if ! command -v clang++-16 >/dev/null || ! compgen -G \
  '/usr/lib/llvm-16/lib/clang/16/lib/linux/libclang_rt.fuzzer-*.a' >/dev/null; then
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
  install() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
      --no-install-recommends -o DPkg::Lock::Timeout=300 clang-16 libclang-rt-16-dev
  }
  if ! why=$({ install || { "${as_root[@]}" apt-get update -qq && install; }; } 2>&1 >/dev/null)
  then
    echo "clang-16 and libclang-rt-16-dev are not installed, and cannot be: $(tail -n 1 <<<"$why")"
    [ -n "${TROUPE_NO_SETUP:-}" ] && exit 77
    exit 1
  fi
fi
library=build/release
[ -e "$library/libtroupe.so" ] ||
  { echo "there is no release build; scripts/build makes one" && exit 77; }
work=build/fuzz
mkdir -p "$work/wire"

# the library's build flags decide the layout of its types
read -r -a http < <(pkg-config --cflags --libs cpp-httplib)
version=$(sed -n 's/^project(Troupe VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
for file in test/cluster/golden/*.golden; do
  bytes=$(tr -d ' \n' <"$file")
  # The target reads the header's size first.
  {
    printf '%b' "$(printf '\\x%02x\\x%02x' $((${#bytes} / 2 % 256)) $((${#bytes} / 512)))"
    printf '%b' "$(sed 's/../\\x&/g' <<<"$bytes")"
  } >"$work/wire/$(basename "$file" .golden)"
done

targets=("${@/#/test/fuzz/}")
[ $# -gt 0 ] && targets=("${targets[@]/%/.cpp}") || targets=(test/fuzz/*.cpp)

# fuzz FILE: leaves a file NAME.ok if all was well.
fuzz() {
  local file=$1 name instrumented executed coverage
  name=$(basename "$file" .cpp)
  rm -f "$work/$name.ok"
  # the words behind `Instruments:` in the comment at the head
  read -r -a instrumented < <(sed '/^[^/]/,$d; s|^// *||' "$file" | tr '\n' ' ' |
    sed 's/.*Instruments: *//; s/$/\n/')
  # vptr: types that libtroupe hides have no type information to compare with.
  clang++-16 -std=c++20 -O1 -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize=vptr \
    -fno-sanitize-recover=all -DMSGPACK_NO_BOOST -DTROUPE_VERSION="\"$version\"" \
    -I build/release/include "$file" "${instrumented[@]}" -L "$library" \
    -Wl,-rpath,"$PWD/$library" -ltroupe -lfmt -lzmq -lcrypto "${http[@]}" \
    -o "$work/$name.bin" || return 0
  mkdir -p "$work/$name"
  if ! TROUPE_SEEDS=$work/$name "$work/$name.bin" -max_total_time="$seconds" \
    -print_final_stats=1 -max_len=16384 -timeout=20 -artifact_prefix="$work/$name-" \
    "$work/$name" >"$work/$name.log" 2>&1; then
    echo "$file: a crash; the input is in $work, the report in $work/$name.log"
    return 0
  fi
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$name.log")
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$work/$name.log" | tail -1)
  echo "$name: ${executed:-0} executions, coverage ${coverage:-0}"
  if [ "${executed:-0}" -gt 0 ]; then
    touch "$work/$name.ok"
  else
    echo "$file: nothing was executed"
  fi
}

for file in "${targets[@]}"; do
  [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n || true
  fuzz "$file" &
done
wait
status=0
for file in "${targets[@]}"; do
  [ -e "$work/$(basename "$file" .cpp).ok" ] || status=1
done
exit $status
