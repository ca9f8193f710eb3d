#!/usr/bin/env bash
# scripts/checks/shell.sh [TREE]: shellcheck of every script, where it is installed.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"
command -v shellcheck >/dev/null ||
  { echo "shellcheck is not installed; scripts/setup installs it" && exit 77; }
pruned=(--exclude-dir=build --exclude-dir=.git --exclude-dir=.peers)
grep -rlE '^#!.*\b(ba|)sh$' "${pruned[@]}" . | sort | xargs shellcheck -x -S warning -e SC2044
