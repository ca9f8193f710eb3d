#!/usr/bin/env bash
# test/package/manual_test.sh SOURCE BUILD: do the manual pages say what the program says?
#
# There is a page a verb, with all flags of its help and no others, and a text of its own with
# examples whose verbs and flags exist. groff has no complaint about any.
set -euo pipefail
source=$1 build=$2
failures=0
complain() {
  echo "$1"
  failures=$((failures + 1))
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/help"

flags() {
  grep -oE -- '(^|[^[:alnum:]-])--?[a-z][a-z-]*' | grep -oE -- '--?[a-z][a-z-]*' | sort -u
}
declared() { # help text: flags that stand where they are declared
  grep -E '^  -' | cut -c1-30 | flags
}

"$build/troupe" --help >"$work/help/troupe"
mapfile -t verbs < <(sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p' "$work/help/troupe")
[ ${#verbs[@]} -gt 10 ] || complain "there are hardly any verbs: ${verbs[*]}"
printf '%s\n' troupe "${verbs[@]/#/troupe-}" | cmp - "$build/man/pages" ||
  complain "these are not the pages of the verbs"
for verb in "${verbs[@]}"; do "$build/troupe" "$verb" --help >"$work/help/troupe-$verb"; done
while IFS= read -r page; do
  zcat "$build/man/$page.1.gz" >"$work/page"
  sed -n '/^\.SH OPTIONS/,/^\.SH [^O]/p' "$work/page" | grep '^\.B \\-' |
    sed 's/\\fR.*//; s/\\-/-/g' | flags >"$work/shown"
  declared <"$work/help/$page" >"$work/declared"
  diff "$work/declared" "$work/shown" || complain "$page.1 has other options than the help"
  summary=$(sed -n 's/^Troupe: //; 1p' "$work/help/$page")
  grep -qF -- "$(sed 's/-/\\-/g; s/\.$//' <<<"${summary#Troupe: }")" "$work/page" ||
    complain "$page.1 does not say '$summary'"
  if command -v groff >/dev/null; then
    said=$(groff -man -Tutf8 -ww "$work/page" 2>&1 >/dev/null) || true
    [ -z "$said" ] || complain "$page.1: $said"
  fi
done <"$build/man/pages"

for text in "$source"/scripts/man/*.man; do
  name=$(basename "$text" .man)
  [ "$name" = troupe ] || [ -e "$work/help/troupe-$name" ] ||
    complain "scripts/man/$name.man is of no verb"
done
for verb in "${verbs[@]}"; do
  text=$source/scripts/man/$verb.man
  [ -e "$text" ] || { complain "'$verb' has no scripts/man/$verb.man with examples" && continue; }
  sed -n '/^\.SH EXAMPLES/,/^\.fi/p' "$text" | grep -F "troupe $verb" | sed 's/\\-/-/g' \
    >"$work/examples" || complain "$text has no example of 'troupe $verb'"
  while IFS= read -r example; do
    example=$(sed 's/ *#.*//; s/ | .*//' <<<"$example")
    while IFS= read -r flag; do
      declared <"$work/help/troupe-$verb" | grep -cxF -- "$flag" >/dev/null ||
        complain "scripts/man/$verb.man: 'troupe $verb' has no $flag"
    done < <(flags <<<"$example" || true)
  done <"$work/examples"
done
echo "$(wc -l <"$build/man/pages") manual pages"
[ "$failures" = 0 ]
