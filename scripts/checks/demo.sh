#!/usr/bin/env bash
# scripts/checks/demo.sh [TREE]: runs scripts/demo for ten steps and checks it.
#
# The demo must print the addresses of three nodes with keys, have a finite loss for each step, end
# with 0, and leave no process. While it runs three nodes with keys have to be seen, or their end
# would prove nothing. And char_lm's page has to report that each got the weights and sent
# gradients: these are megabytes, and idle nodes exchange only some hundred bytes.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

work=$(mktemp -d)
mark=CHECKED_AS=$work  # in the environment of all its processes, and of no others
of_it() { grep -lszxF "$mark" /proc/[0-9]*/environ | cut -d/ -f3 || true; }
end_all() {
  of_it | xargs -r kill -KILL 2>/dev/null || true
  rm -rf "$work"
}
trap end_all EXIT
trap 'exit 143' TERM INT HUP
fail() {
  echo "scripts/demo: $1"
  cat "$work/demo.log"
  exit 1
}

nodes_seen() {
  local pid
  for pid in $(of_it); do
    { tr '\0' ' ' <"/proc/$pid/cmdline" && echo; } 2>/dev/null || true
  done | grep -cE '(^|/)troupe node .*--name demo-[123] .*--keys ' || true
}

# Prints the names of nodes that have received and sent a megabyte each.
computed() {
  local page
  # the log may not have begun
  page=$(sed -n 's/^to be seen at \(http:[^ ]*\)$/\1/p' "$work/demo.log" 2>/dev/null) || return 0
  [ -n "$page" ] || return 0
  build/release/troupe ps --node "$page" --json 2>/dev/null | python3 -c '
import json, sys
for node in json.load(sys.stdin)["nodes"]:
    if node["name"].startswith("demo-") and all(
            node.get("transport", {}).get(way, 0) > 1e6
            for way in ("received_bytes", "sent_bytes")): print(node["name"])' 2>/dev/null || true
}

env "$mark" scripts/demo --steps 10 --validate-every 1 --no-save --sample-chars 0 --http 0 \
  >"$work/demo.log" 2>&1 &
demo=$!
most=0
while kill -0 $demo 2>/dev/null; do
  seen=$(nodes_seen)
  [ "$seen" -le "$most" ] || most=$seen
  computed >>"$work/computed"
  sleep 0.1
done
status=0
wait $demo || status=$?
left=$(of_it | paste -sd' ')

[ $status -eq 0 ] || fail "ends with $status"
told=$(sed -n 's/^three nodes, with keys: //p' "$work/demo.log")
[ "$(tr ',' '\n' <<<"$told" | grep -cE '^ ?demo-[123] at tcp://127\.0\.0\.1:[0-9]+$')" -eq 3 ] ||
  fail "does not say where three nodes with keys are"
[ "$most" -eq 3 ] || fail "$most nodes with keys were seen while it ran"
shares=$(sort -u "$work/computed" | wc -l)
[ "$shares" -eq 3 ] || fail "$shares of its nodes had a share of the work: $(
  sort "$work/computed" | uniq -c | paste -sd,
)"
for step in 1 2 3 4 5 6 7 8 9 10; do
  grep -qE "^step +$step of 10 +loss [0-9]+\.[0-9]+ " "$work/demo.log" ||
    fail "has no finite loss for step $step"
done
[ -z "$left" ] || fail "has left processes: $left"
echo "three nodes with keys and a share each, ten steps: $(
  sed -nE 's/^step +[0-9]+ of 10 +(loss [0-9.]+) .*/\1/p' "$work/demo.log" |
    paste -sd, | sed 's/,/, /g'
)"
