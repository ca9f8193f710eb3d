#!/usr/bin/env bash
# scripts/checks/shell.sh [TREE]: shellcheck of every script, where it is installed.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"
command -v shellcheck >/dev/null || { echo "shellcheck is not installed; scripts/setup installs it" && exit 77; }
grep -rlE '^#!.*\b(ba|)sh$' --exclude-dir=build --exclude-dir=.git --exclude-dir=.peers . | sort | xargs shellcheck -x -S warning
