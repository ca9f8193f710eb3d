#!/usr/bin/env bash
# test/page/page_test.sh SOURCE BUILD: tests the web page.
#
# Its model runs with node, the page in headless Chromium against a made-up node and a real one, and
# so do reports of runs over one node and two. Screenshots for people to look at go to
# BUILD/test/page/. Skipped without Chromium: scripts/setup --page installs it.
set -uo pipefail
source=$1 build=$2

# The page does not depend on how Troupe was compiled.
case $build in *release*) ;; *) echo "the page is tested with the release build"; exit 77 ;; esac

failures=0
if command -v node >/dev/null; then
  out=$(node --test "$source"/test/page/{model,style,causes}_test.mjs 2>&1) ||
    { printf '%s\n' "$out"; failures=1; }
else
  echo "no node: the model is tested in the browser only"
fi
if ! command -v chromium >/dev/null || ! /usr/bin/python3 -c 'import websocket' 2>/dev/null; then
  [ $failures -eq 0 ] || exit 1
  echo "no Chromium here: scripts/setup --page installs it"
  exit 77
fi
/usr/bin/python3 "$source/test/page/page_test.py" "$source" "$build" || failures=1
exit $failures
