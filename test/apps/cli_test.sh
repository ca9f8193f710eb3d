#!/usr/bin/env bash
# test/apps/cli_test.sh SOURCE BUILD: the binary `troupe`, its verbs, its answers to misuse.
set -uo pipefail
troupe=$2/troupe
failures=0
export XDG_CACHE_HOME=$2/test/cache  # plans over the fake runtime

# expect STATUS PATTERN ARGUMENT...: what it prints, on either stream, matches the pattern.
expect() {
  local status=$1 pattern=$2 got=0 out
  shift 2
  out=$(timeout 120 "$troupe" "$@" 2>&1) || got=$?
  if [ "$got" -ne "$status" ] || ! grep -qE -- "$pattern" <<<"$out"; then
    printf 'troupe %s: status %d, want %d; want /%s/ in:\n%s\n' \
      "$*" "$got" "$status" "$pattern" "$out"
    failures=$((failures + 1))
  fi
}

expect 0 '^troupe [0-9]+\.[0-9]+\.[0-9]+$' version
expect 0 '^CAF: 0\.17' version
expect 0 '^troupe [0-9]+\.[0-9]+\.[0-9]+$' --version
expect 0 '^kernels +x86-64 level|^kernels +.*portable' doctor
expect 0 '^self-test +cpu:0: a graph and its gradient are right$' doctor
# doctor_with FILE PATTERN: the report of a process that is to load a plug-in.
doctor_with() { TROUPE_DEVICE_PLUGINS=$1 expect 0 "$2" doctor; }
doctor_with /nowhere/gpu.so '^GPU plug-in +not loaded: /nowhere/gpu.so cannot be opened'
doctor_with "$2/libtroupe.so" 'is no plug-in: it does not export troupe_device_plugin'
fake=$2/test/libtroupe_cuda_fake.so  # is there if the headers of CUDA are
[ ! -e "$fake" ] || doctor_with "$fake" '^self-test +gpu:0: a graph and its gradient are right$'
expect 0 '^GPU +.' doctor
for what in features cores memory; do expect 0 "^$what +." doctor; done
for library in CAF oneDNN Eigen fmt ZeroMQ OpenSSL cpp-httplib libtroupe; do
  expect 0 "^$library +[0-9]+\\.[0-9]" doctor
done
expect 0 '^Tanh +.*Inputs: 1' ops
expect 0 '^MatMul: ' ops MatMul
expect 0 'attribute: dtype \(dtype, required\)' ops Cast
expect 0 'gradient: +none, by definition' ops ArgMax
for verb in version doctor ops keygen node clear cancel drain runs attach ps top inspect graph \
  diagnose trace metrics report watch query checkpoint dependencies run completions; do
  expect 0 "^  $verb " --help
  expect 0 'Usage: troupe '"$verb" "$verb" --help
done

expect 2 "there is no op 'MatMull'; did you mean 'MatMul'" ops MatMull
expect 0 '^ +algebra +all dtypes' ops --device cpu
expect 0 'on cpu:0: +yes' ops MatMul --device cpu:0
expect 2 "gpu:9" ops --device gpu:9
if [ -e "$fake" ]; then
  export TROUPE_DEVICE_PLUGINS=$fake
  expect 0 '^ +softmax +f16 bf16 f32 f64' ops --device gpu
  expect 0 '^ +Cholesky +algebra' ops --device gpu
  expect 0 'on gpu:0: +no, on the host: it lacks algebra' ops Cholesky --device gpu
  expect 0 '^cuBLASLt +' doctor
  expect 0 '^NVRTC +' doctor
  unset TROUPE_DEVICE_PLUGINS
fi
expect 0 "^einsum +Einstein's sums" ops
expect 0 '^huber_loss: For each element' ops huber_loss
expect 0 'Expr group_norm\(Operand x, std::int64_t groups' ops group_norm
expect 2 "there is no op 'einsun'; did you mean 'einsum'" ops einsun
expect 2 "there is no verb 'opps'; did you mean 'ops'\? the verbs are version, doctor, ops" opps
expect 2 "there is no verb 'x'; the verbs are version, doctor, ops, keygen, node" x
expect 2 "there is no flag '--verbose'; run 'troupe --help'" --verbose
expect 2 "run 'troupe ops --help'" ops --verbose
expect 2 "run 'troupe ops --help'" ops Add Sub
expect 2 'name a verb: version, doctor, ops, keygen, node'

expect 1 'no node answers at http://127.0.0.1:1 .*start one' ps --node http://127.0.0.1:1
# Status 3 means: a run hangs.
expect 1 'no node answers at http://127.0.0.1:1 ' diagnose --node http://127.0.0.1:1
TROUPE_HTTP=http://127.0.0.1:2 expect 1 'no node answers at http://127.0.0.1:2 ' ps
TROUPE_HTTP=http://127.0.0.1:2 expect 1 'no node answers at http://127.0.0.1:1 ' \
  ps --node http://127.0.0.1:1
expect 2 'not in range 0.05.* to 86400' ps --watch 0 --node http://127.0.0.1:1
expect 1 'no node answers at http://127.0.0.1:1 ' top --node http://127.0.0.1:1
for flags in --json '--json --watch' '--watch 0.1'; do
  expect 1 'no node answers at http://127.0.0.1:1 ' top $flags --node http://127.0.0.1:1
done
expect 2 '--every excludes --watch|--watch excludes --every' \
  top --every 1 --watch 1 --node http://127.0.0.1:1
expect 2 'not in range 0.05.* to 86400' top --watch 0 --node http://127.0.0.1:1
expect 1 'no node answers at http://127.0.0.1:1 ' trace --json --node http://127.0.0.1:1
for flag in --json --watch; do expect 0 " $flag " top --help; done
expect 0 ' --json ' trace --help
expect 2 "run 'troupe trace --help'" trace --seconds 0
for flag in --watch '--watch 2' --watch=2; do
  expect 2 "'trace' takes no --watch: a trace covers one span" \
    trace $flag --node http://127.0.0.1:1
done
expect 2 "not ''" ps --node ''
expect 2 "not 'http://'" ps --node http://
for port in 72000 65536 99999999999; do
  expect 2 "--node takes a port up to 65535, not '$port'" ps --node $port
done
for verb in 'trace --seconds 60' 'report a/1'; do
  # The file is opened before any node is asked.
  expect 2 "'/nonexistent/x' cannot be written: No such file" \
    $verb -o /nonexistent/x --node http://127.0.0.1:1
  made=$(mktemp -u)
  expect 1 'no node answers at http://127.0.0.1:1 ' $verb -o "$made" --node http://127.0.0.1:1
  if [ -e "$made" ]; then
    echo "troupe $verb, whom nobody answers, leaves a file"
    failures=$((failures + 1))
    rm -f "$made"
  fi
done
for verb in ops version --help; do
  if "$troupe" $verb 2>/dev/null >/dev/full; then
    echo "troupe $verb > /dev/full: status 0"
    failures=$((failures + 1))
  fi
done
grep -q 'cannot be written' < <("$troupe" version 2>&1 >/dev/full) || {
  echo 'troupe version > /dev/full says nothing'
  failures=$((failures + 1))
}
for shell in bash zsh fish; do expect 0 'diagnose' completions "$shell"; done

events=$(mktemp)
kernel() { # NAME MICROSECONDS
  printf '{"ph":"X","cat":"kernel","name":"%s","ts":%d,"dur":5,"pid":1,"tid":1},\n' "$1" "$2"
}
{
  echo '['
  for ((i = 0; i < 60; ++i)); do
    at=$((i * 1000 + i * i % 97 * 7))
    kernel a $at
    kernel b $((at + 10 + i % 7))
  done
  echo '{"ph":"M","name":"process_name","pid":1,"args":{"name":"n"}}]'
} >"$events"
row="^\\+ 0\.000-1\.000 s  node 'n'  kind 'kernel'  name 'a'  events 60  busy_ns 0\.300 ms"
expect 0 "$row" watch activity "$events"
expect 0 '^$' watch stalled-edges "$events"
expect 0 '"change":"insert","end_ns":1000000000,"events":60' watch activity "$events" --json
expect 0 '^a -> b: strength [01]\.[0-9]+, delay 1[0-9]' dependencies "$events" --support 0.0005
expect 0 '^  "a" -> "b" \[label=' dependencies "$events" --support 0.0005 --dot
expect 0 '"edges":\[\{"delay"' dependencies "$events" --support 0.0005 --json
expect 0 'p = 1?[0-9.e-]+, by shifts 0.01$' dependencies "$events" --support 0.0005 --changes
expect 0 'true edges: precision 0.00, recall 1.00: 0 right, 1 wrong, 0 missed' \
  dependencies "$events" --support 0.0005 --truth
expect 0 '"truth":\{"missed":0,"precision":0.0' dependencies "$events" --support 0.0005 \
  --truth --json
expect 0 '"family":"gamma of shape' dependencies "$events" --support 0.0005 --family gamma --json
expect 2 "'/tmp' cannot be read" dependencies /tmp
expect 2 'weibull' dependencies "$events" --family weibull
expect 2 '--json excludes --dot|--dot excludes --json' dependencies "$events" --json --dot
expect 1 "has no events of these kinds" dependencies "$events" --kind copy
expect 1 "is no trace: .*record one with 'troupe trace -o FILE'" dependencies "$0"
expect 2 "'/nonexistent/x' cannot be read" watch activity /nonexistent/x
expect 2 "there is no standing query 'stalls'" watch stalls "$events"
expect 1 'no node answers at http://127.0.0.1:1 ' watch activity --node http://127.0.0.1:1
expect 2 'strong' watch activity "$events" --level best
rm -f "$events"

folder=$(mktemp -d)
printf 'time,m\n6,m1\n0,m1\n2,m2\n' >"$folder/up.csv"
printf '{"time":3,"m":"m1"}\n{"time":9,"m":"m2"}\n' >"$folder/down.jsonl"
printf 'EVENT E WHEN SEQUENCE(up x, down y, 5 seconds)\nWHERE x.m = y.m OUTPUT x.m' >"$folder/q"
sources="--source up=$folder/up.csv --source down=$folder/down.jsonl"
expect 0 '^3,5,m1$' query "$folder/q" $sources
expect 0 '^insert,[0-9]+,3,5,m1$' query "$folder/q" $sources --changes --level middle
expect 0 '"begin":3,"end":5,"m":"m1"' query "$folder/q" $sources --json
expect 0 '^pattern#.* by \(x.m\)$' query "$folder/q" $sources --explain
expect 0 '^pattern#4/1 on c <- up.finalize, down.finalize: ' \
  query "$folder/q" $sources --explain --on b --on c
expect 2 "names node 'b' twice" query "$folder/q" $sources --explain --on b --on b
expect 2 '--partitions requires --on' query "$folder/q" $sources --partitions 2
expect 1 'no node answers at tcp://127.0.0.1:1' \
  query "$folder/q" $sources --on b --join 127.0.0.1:1 --patience 0
expect 2 "line 1, column 19: found 'up'; expected one of the events down" \
  query 'EVENT E WHEN ALL( up, down, 3)' --source "down=$folder/down.jsonl"
expect 2 "'nofile.txt' is no file, and no query" query nofile.txt $sources
expect 2 "--source is 'up'; write NAME=FILE" query 'EVENT x' --source up
expect 1 "q': line 2: there are 1 cells and 3 columns" query 'EVENT x' --source "up=$folder/q"
expect 2 "cannot be read; name a file of events" query x --source up=/nonexistent/x
expect 2 "names 'up' twice" query x --source "up=$folder/up.csv" --source "up=$folder/down.jsonl"
expect 2 "a row has a field 'end' beside its own 'end'; rename it" \
  query 'EVENT E WHEN up x OUTPUT x.m AS end' --source "up=$folder/up.csv"
head -1 "$folder/up.csv" >"$folder/none.csv"
expect 2 "no lines in up: give types in the header, as in name:text" \
  query "EVENT E WHEN up x WHERE x.m = 'a'" --source "up=$folder/none.csv"
rm -rf "$folder"

folder=$(mktemp -d)
python3 - "$folder/step-4.safetensors" <<'CHECKPOINT'
import json, struct, sys
def crc64(data, crc=0):  # CRC-64/XZ
    crc ^= 2**64 - 1
    for byte in data:
        crc ^= byte
        for _ in range(8): crc = crc >> 1 ^ (0xC96C5795D7870F42 if crc & 1 else 0)
    return crc ^ 2**64 - 1
def head(checksum):
    text = json.dumps({"__metadata__": {"troupe.crc64": checksum, "troupe.metric": "0.5",
                                        "troupe.step": "4"},
                       "w/a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                       "w/a/m": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}},
                      separators=(",", ":"))
    return (text + " " * (-len(text) % 8)).encode()
data = struct.pack("<3f", 1, 2, 3)
text = head("%016x" % crc64(head("0" * 16) + data))
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data)
CHECKPOINT
expect 0 '^ +4 +[0-9]+ B  - +0\.5$' checkpoint list "$folder"
expect 0 '"metric":0\.5' checkpoint list "$folder" --json
expect 0 '^f32\[2\]  w/a$' checkpoint show "$folder"
expect 0 '^step 4: 2 variables, whole$' checkpoint verify "$folder"
expect 0 '^2 variables of step 4 in ' checkpoint export "$folder" --only w --to "$folder/out"
expect 0 '^1 variables of step 4 in ' checkpoint export "$folder" --only w/a --to "$folder/out"
expect 1 'has no variable named x' checkpoint export "$folder" --only x --to "$folder/out"
expect 1 'has no checkpoint of step 5; there are 4$' checkpoint show "$folder" --step 5
expect 2 'needs a file to write' checkpoint export "$folder"
expect 2 'there is no folder of checkpoints' checkpoint list /nonexistent/x
head -c 60 "$folder/step-4.safetensors" >"$folder/step-6.safetensors"
expect 1 '^step 6: .*step-6.safetensors' checkpoint verify "$folder"
sed 's/troupe.crc64/troupe.crc65/' "$folder/step-4.safetensors" >"$folder/step-5.safetensors"
expect 1 '^step 5: .* has no checksum' checkpoint verify "$folder" --step 5
rm -rf "$folder"

# If the reason cannot be printed, the status does not change.
silent() { # STATUS ARGUMENT...
  local status=$1 got
  shift
  for to in /dev/full closed; do
    got=0
    if [ $to = closed ]; then
      "$troupe" "$@" >/dev/null 2>&- || got=$?
    else
      "$troupe" "$@" >/dev/null 2>$to || got=$?
    fi
    [ "$got" -eq "$status" ] || {
      echo "troupe $*, stderr $to: status $got, want $status"
      failures=$((failures + 1))
    }
  done
}
silent 2 opps
silent 2 node --name '*'
silent 1 ps --node http://127.0.0.1:1
silent 0 version

# Control characters of an argument do not reach the terminal, and an invalid address is not
# reported as a host that does not answer.
expect 2 "there is no verb '\?\[31mx'" $'\x1b[31mx'
for place in 127.0.0.1:abc 127.0.0.1: :7200 ::1 'a b' http://127.0.0.1:1/path '[::1' '[::1]7200' \
  user@127.0.0.1:1; do
  expect 2 'takes where a node serves --http' ps --node "$place"
done
expect 2 "takes a port up to 65535, not '99999'" ps --node 127.0.0.1:99999
expect 1 'no node answers at http://\[::1\]:1 ' ps --node '[::1]:1'
for number in nan -nan; do
  expect 2 'is no number|not in range' ps --watch=$number --node http://127.0.0.1:1
done
expect 2 'is no number' top --every nan --node http://127.0.0.1:1
expect 2 '--dot excludes --json|--json excludes --dot' graph --json --dot --node http://127.0.0.1:1

keys=$(mktemp -d)
# The empty value of a variable that is not set makes no new key.
expect 2 "run 'troupe keygen --help'" keygen --keys "$keys/a" --authorize '' --name beta
[ ! -e "$keys/a" ] || { echo 'keygen --authorize "" has made a key'; failures=$((failures + 1)); }
expect 2 "run 'troupe keygen --help'" keygen --keys ''
expect 0 '^[^ ]{40} alpha$' keygen --keys "$keys/a" --name alpha
expect 2 'node.key is there already' keygen --keys "$keys/a"
expect 0 '^beta may connect' keygen --keys "$keys/a" --name beta \
  --authorize "$("$troupe" keygen --keys "$keys/b" --name beta 2>/dev/null | cut -d' ' -f1)"
expect 2 "'abc' is no public key" keygen --keys "$keys/a" --authorize abc
expect 2 "there is no .*node.key; 'troupe keygen" \
  keygen --keys "$keys/none" --name b --authorize "$(head -c 40 /dev/zero | tr '\0' a)"
expect 2 "name the owner of the key: --name" \
  keygen --keys "$keys/a" --authorize "$(head -c 40 /dev/zero | tr '\0' a)"
rm -rf "$keys"

expect 2 "takes an address such as tcp://127.0.0.1:7117, not 'here'" node --listen here
expect 2 "there is no folder '/nowhere'; run 'troupe node --help'" node --flight /nowhere
expect 2 "a node needs a name without '/'" node --name a/b
expect 2 "'gpu' is no label; write key=value" node --labels zone=x,gpu
expect 2 "--http takes a port, which is on loopback, or HOST:PORT, not 'x:y'" \
  node --http x:y --standalone 2
expect 2 "run 'troupe node --help'" node --standalone 0
expect 2 'not in range 1 to 256|not in range \[1 - 256\]' node --standalone -3
expect 2 "'65536' is no port" node --listen tcp://127.0.0.1:65536
expect 2 "'/tmp' cannot be read: it is a folder" node --peers /tmp
expect 2 'labels are UTF-8 without control characters' node --labels $'a=\x1b[31m'
expect 2 'not in range 0 to 4096|not in range \[0 - 4096\]' node --workers -1
expect 2 'of 3 nodes that is 65533 at most, not 65534' node --standalone 3 --http 65534
expect 2 "the label 'a' is there twice" node --labels a=1,a=2
expect 2 'no spaces, control characters' node --name '*'
OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 expect 2 \
  'this is rank 1 of 2, and Open MPI does not name the other nodes' \
  node --listen tcp://127.0.0.1:0
# ZeroMQ's library is not instrumented: TSan would report it.
if [[ $2 != *tsan* ]]; then
  expect 1 'no node could be joined: tcp://127.0.0.1:1: ' \
    node --listen tcp://127.0.0.1:0 --join tcp://127.0.0.1:1 --patience 0
  expect 1 'no node could be joined: tcp://127.0.0.1:1: ' \
    clear models --on b --join tcp://127.0.0.1:1 --patience 0
  SLURM_PROCID=1 SLURM_STEP_NODELIST='127.0.0.[1-2]' expect 1 \
    'no node could be joined: tcp://127.0.0.1:7117: ' \
    node --listen tcp://127.0.0.1:0 --patience 0
  nobody=(--join tcp://127.0.0.1:1 --patience 0)
  expect 1 'no node could be joined: tcp://127.0.0.1:1: ' cancel a/1 "${nobody[@]}"
  expect 1 'no node could be joined: tcp://127.0.0.1:1: ' drain b "${nobody[@]}"
  expect 1 'no node could be joined: tcp://127.0.0.1:1: ' runs "${nobody[@]}"
  expect 1 'no node could be joined: tcp://127.0.0.1:1: ' attach demo "${nobody[@]}"
fi
expect 2 "run 'troupe cancel --help'" cancel
expect 2 "run 'troupe drain --help'" drain
expect 2 "run 'troupe attach --help'" attach
for run in a a/ /7 a/x; do
  expect 2 "'$run' is no run: a run is NODE/NUMBER" cancel "$run"
done
expect 2 "'--suspect-after'.*0\.1|--suspect-after: .*0\.1" node --suspect-after 0.01
expect 2 "'nan' is no number|--suspect-after" node --suspect-after nan
expect 2 "'a b' is no address; write HOST" clear models --on b --join 'a b'
expect 2 "run 'troupe clear --help'" clear models
expect 2 "run 'troupe clear --help'" clear --on b
expect 2 'name a container' clear '' --on b
expect 2 "there is no .*node.key; 'troupe keygen" clear models --on b --keys /nonexistent
expect 2 "'a b' is no address; write HOST" node --join 'a b'
remedy='has an IPv6 address without brackets; write tcp://\[fd00::1\]:7117'
expect 2 "--listen: 'tcp://fd00::1:7117' $remedy" node --listen tcp://fd00::1:7117
expect 2 "'fd00::1' $remedy" node --join fd00::1
for place in fd00::1 fd00::1:7200; do
  expect 2 "--http takes an IPv6 address in brackets, .\[ADDRESS\]:PORT., not '$place'" \
    node --listen tcp://127.0.0.1:0 --name a --http "$place"
done
expect 2 "the list of peers '/nowhere' cannot be read" node --peers /nowhere
expect 2 "the list of peers '/dev/zero' is longer than 1 MiB" node --peers /dev/zero
expect 2 "the file '/dev/zero' is longer than 1 MiB" \
  ps --token-file /dev/zero --node http://127.0.0.1:1
expect 2 "the file '/dev/stdin' is longer than 1 MiB" \
  ps --token-file /dev/stdin --node http://127.0.0.1:1 < <(yes '')
for file in /nowhere /tmp; do
  expect 2 "no token can be read from '$file'; name a file that holds one" \
    ps --token-file "$file" --node http://127.0.0.1:1
done
TROUPE_JOIN=a:b expect 2 "TROUPE_JOIN: 'a:b': 'b' is no port" node

# A processor limited below v3 is reported as degraded.
out=$(TROUPE_CPU_LEVEL=v2 "$troupe" doctor)
status=$?
if [ $status -ne 1 ] || ! grep -q '^amiss: the CPU kernels run below' <<<"$out"; then
  printf 'a v2 doctor: status %d, want 1, in:\n%s\n' $status "$out"
  failures=$((failures + 1))
fi
exit $((failures > 0))
